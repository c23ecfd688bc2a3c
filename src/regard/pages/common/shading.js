// Documents shaded by attention: a bar for the weight of each sentence, and words that are darker if they weigh more.
import { html, number } from "./draw.js";

const MOST_LABELS = 5;
const percent = (share) => `${number(100 * share, share < 0.1 ? 1 : 0)} %`;

// The text of a sentence, in which each word is shaded by its share of the attention to the document.
function shadedWords({ text, weight, words }, strongest) {
  const parts = [];
  let place = 0;
  for (const word of words) {
    const start = text.indexOf(word.text, place);
    if (start < 0) continue;
    if (start > place) parts.push(text.slice(place, start));
    const share = weight * word.weight;
    const mark = html("span", { class: "shaded",
      title: `${percent(word.weight)} of its sentence, ${percent(share)} of the document` },
      word.text);
    mark.style.setProperty("--strength", strongest > 0 ? (share / strongest).toFixed(3) : "0");
    parts.push(mark);
    place = start + word.text.length;
  }
  return [...parts, text.slice(place)];
}

function shadedSentences(sentences) {
  const heaviest = Math.max(0, ...sentences.map(({ weight }) => weight));
  const shares = sentences.flatMap(({ weight, words }) => words.map((word) => weight * word.weight));
  const strongest = shares.reduce((most, share) => Math.max(most, share), 0);
  return html("ol", { class: "shaded-sentences" }, sentences.map((sentence) => {
    const bar = html("i", { "aria-hidden": "true" });
    bar.style.setProperty("--share", heaviest > 0 ? (sentence.weight / heaviest).toFixed(3) : "0");
    return html("li", {}, html("span", { class: "sentence-weight", title: "attention weight of this sentence" }, bar,
      html("span", {}, percent(sentence.weight))),
      html("p", { dir: "auto" }, shadedWords(sentence, strongest)));
  }));
}

// The most probable labels as bars; predicted labels, and right labels if they are known, are marked.
function probabilityBars({ probabilities, labels }, right) {
  const ranked = Object.entries(probabilities).sort(([, one], [, other]) => other - one).slice(0, MOST_LABELS);
  return html("dl", { class: "probabilities" }, ranked.map(([label, probability]) => {
    const bar = html("i", { "aria-hidden": "true" });
    bar.style.setProperty("--share", probability.toFixed(4));
    const isRight = right?.includes(label);
    return html("div", { class: labels.includes(label) ? "given" : null },
      html("dt", {}, label, isRight && html("span", { class: "tag" }, " right")),
      html("dd", {}, bar, html("span", {}, percent(probability))));
  }));
}

function verdictView(verdict, right) {
  return html("article", { class: "verdict" }, probabilityBars(verdict, right ?? verdict.right),
    verdict.sentences?.length > 0 && shadedSentences(verdict.sentences),
    verdict.truncated_tokens > 0 && html("p", { class: "notes" },
      `${number(verdict.truncated_tokens)} tokens were not read: the document is longer than the limit.`));
}

export { percent, shadedSentences, probabilityBars, verdictView };
