// Samples as a bilingual book prints them: source on the left page, output on the right, and below it the
// reference where it differs, with the words that differ marked in both.
import { tidy, words, differences, marked } from "../common/differences.js";
import { html, figure, isNumber, plural, choice } from "../common/draw.js";

const AT_FIRST = 10;

const isSame = (sample) => tidy(sample.reference) === tidy(sample.output);
const differs = (sample) => Boolean(sample.reference) && sample.correct !== true && !isSame(sample);

function verse(sample, languages) {
  const isDifferent = differs(sample);
  const [ours, theirs] = [sample.output, sample.reference].map((text) => words(tidy(text), languages.target));
  const [extra, missing] = isDifferent ? differences(ours, theirs) : [[], []];
  const text = (side, content) => html("p", { class: `verse ${side}`, lang: languages[side], dir: "auto" }, content);
  const notes = [
    isNumber(sample.score) && `score ${figure(sample.score)}`,
    sample.reference && !isDifferent && (isSame(sample) ? "same as the reference" : "counted as correct"),
  ].filter(Boolean);
  return html("li", { class: "sample" },
    html("div", { class: "leaf source" }, text("source", tidy(sample.source))),
    html("div", { class: "leaf target" },
      text("target", marked(ours, extra)),
      isDifferent && html("div", { class: "reference" },
        html("span", { class: "tag" }, "reference"), text("target", marked(theirs, missing))),
      notes.length > 0 && html("p", { class: "notes" }, notes.join(" · "))));
}

function message(list) {
  const judged = list.filter((sample) => sample.reference);
  const same = judged.filter((sample) => !differs(sample)).length;
  if (!judged.length) return `${plural(list.length, "output")}.`;
  if (same === judged.length) return "All outputs shown here equal the reference.";
  return `${same} of ${judged.length} outputs shown here equal the reference; `
    + "in the others, the words that differ are marked.";
}

function samplesView(list, languages, names) {
  if (!list.length) return null;
  const verses = list.map((sample) => ({ isDiffering: differs(sample), node: verse(sample, languages) }));
  const page = html("ol", { class: "samples spread" });
  const more = html("button", { type: "button", class: "quiet more" });
  const state = { isDifferingOnly: false, isWhole: false };

  function render() {
    const wanted = verses.filter((one) => one.isDiffering || !state.isDifferingOnly);
    const shown = state.isWhole ? wanted : wanted.slice(0, AT_FIRST);
    page.replaceChildren(...shown.map((one) => one.node));
    more.hidden = shown.length === wanted.length;
    more.textContent = `Show ${wanted.length - shown.length} more`;
  }
  more.addEventListener("click", () => { state.isWhole = true; render(); });
  const differing = verses.filter((one) => one.isDiffering).length;
  const filter = differing > 0 && differing < verses.length && choice("Which samples",
    [["all", `all ${list.length}`], ["differing", `differing only, ${differing}`]], "all",
    (value) => { state.isDifferingOnly = value === "differing"; render(); });
  render();
  return html("div", {}, html("div", { class: "bar" }, filter),
    html("div", { class: "running-heads", "aria-hidden": "true" },
      html("span", { class: "source" }, names.source), html("span", { class: "target" }, names.target)),
    page, more);
}

export { samplesView, message };
