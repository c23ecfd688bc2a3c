// One document: its predicted labels, and the attention weights of its words and sentences.
import { html, plural } from "../common/draw.js";
import * as frame from "../common/frame.js";
import { percent, verdictView } from "../common/shading.js";

const data = JSON.parse(document.getElementById("data").textContent);
const verdict = data.verdict ?? { probabilities: {}, labels: [], sentences: [] };

function found() {
  const given = verdict.labels.map((label) => `${label}, ${percent(verdict.probabilities[label])}`).join("; ");
  return given ? `Classified as ${given}.` : "No label is probable enough.";
}

// The ten words with the largest attention weights in the document.
function heaviest() {
  const shares = (verdict.sentences ?? []).flatMap(({ weight, words }) =>
    words.map((word) => ({ text: word.text, share: weight * word.weight })));
  return shares.sort((one, other) => other.share - one.share).slice(0, 10);
}

function heaviestNode() {
  const words = heaviest();
  if (!words.length) return null;
  return html("p", { class: "deck" }, words.flatMap(({ text, share }, index) => {
    const mark = html("span", { class: "shaded", title: `${percent(share)} of the document` }, text);
    mark.style.setProperty("--strength", (share / words[0].share).toFixed(3));
    return index ? [" ", mark] : [mark];
  }));
}

const sentences = verdict.sentences ?? [];
frame.sign(data);
document.getElementById("view").replaceChildren(...[
  html("div", { class: "title-page" }, html("h1", {}, data.title || "A document"), html("p", { class: "deck" }, found())),
  frame.section("heaviest", "Words with most attention",
    "The ten words with the largest attention weights in the document.",
    heaviestNode()),
  frame.section("reading", "Words and sentences",
    `${plural(sentences.length, "sentence")} as the model split the text, each with its attention weight. ` +
    "Darker words have more weight in the document.",
    verdictView(verdict)),
].filter(Boolean));
