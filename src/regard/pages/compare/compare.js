// A comparison of systems: scores with their intervals, learning curves against minutes and FLOPs, significance tests,
// published results, and measurements of the architectures. The best system has the colour of the target.
import { html, isNumber, number, figure, large, plural, duration, table } from "../common/draw.js";
import * as frame from "../common/frame.js";
import { curves } from "./curves.js";
import { grid } from "./grid.js";
import { intervals } from "./intervals.js";
import { complexityTable, reachCurves } from "./measured.js";

const { section } = frame;
const data = JSON.parse(document.getElementById("data").textContent);
const list = (value) => (Array.isArray(value) ? value : []);
const metrics = Object.entries(data.metrics ?? {});
const [first] = metrics.map(([key]) => key);
const systems = list(data.systems).map((system) => ({ ...system, ...data.scores?.[system.name] }))
  .sort((one, other) => other[first] - one[first]).map((system, place) => ({ ...system, isBest: place === 0 }));
const power = (value) => {
  if (!isNumber(value) || value <= 0) return "–";
  const exponent = Math.floor(Math.log10(value));
  return [`${number(value / 10 ** exponent, 1)} · 10`, html("sup", {}, String(exponent))];
};
const orNothing = (value, show) => (isNumber(value) ? show(value) : "–");

// ---- results
function resultTable() {
  const headings = ["system", ...metrics.map(([, { label }]) => label), "parameters", "FLOPs", "minutes", "GB",
    "sentences/s", "curve"];
  const rows = systems.map((one) => [
    one.isBest ? html("strong", {}, one.name) : one.name,
    ...metrics.map(([key]) => number(one[key], 1)),
    large(one.parameters), power(one.flops), number(one.seconds / 60, 1),
    orNothing(one.memory, (value) => number(value / 1e9, 1)),
    orNothing(one.sentences_per_second, figure), one.trend || "–"]);
  return html("div", { class: "wide" }, table(headings, rows, "numbers results"));
}

function publishedTable() {
  const rows = list(data.published);
  if (!rows.length) return null;
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((key) => key !== "name");
  const ours = (name) => systems.find((one) => one.published === name);
  return html("div", { class: "wide" }, table(
    ["published system", ...columns, `here: ${data.metrics[first].label}`, "here: FLOPs"],
    rows.map((row) => [row.name,
      ...columns.map((key) => (isNumber(row[key]) ? (row[key] > 1e6 ? power(row[key]) : String(row[key])) : row[key] ?? "–")),
      orNothing(ours(row.name)?.[first], (value) => number(value, 1)), power(ours(row.name)?.flops)]),
    "numbers results"));
}

// ---- sentences
const sample = ({ source, reference, outputs }) => html("li", { class: "sample line" },
  html("div", { class: "leaf source" }, html("p", { class: "verse source", dir: "auto" }, source),
    html("div", { class: "reference" }, html("span", { class: "tag" }, "reference"),
      html("p", { class: "verse", dir: "auto" }, reference))),
  html("div", { class: "leaf target" }, systems.filter(({ name }) => name in outputs).map(({ name, isBest }) =>
    html("div", { class: "made" },
      html("p", { class: "notes" }, html("span", { class: isBest ? "system best" : "system" }, name)),
      html("p", { class: "verse target", dir: "auto" }, outputs[name])))));

const samples = () => list(data.samples).length > 0
  && html("ol", { class: "samples spread" }, data.samples.map(sample));

function method() {
  const seeds = list(data.seeds);
  const rows = [
    ["budget of each training", data.budget],
    ["seeds", seeds.join(", ")],
    data.cores && ["machine", plural(data.cores, "processor core")],
    ...Object.entries(data.signatures ?? {}).map(([key, text]) => [data.metrics[key]?.label ?? key, text]),
    ...systems.map((one) => [one.name, [
      one.arch, one.ensemble && `ensemble of ${one.ensemble}`, one.finetuned && `fine-tuned from ${one.finetuned}`,
      isNumber(one.step) && plural(Math.round(one.step), "step"), isNumber(one.seconds) && duration(one.seconds),
      one.stopped && `ended by ${one.stopped}`].filter(Boolean).join("; ")]),
  ].filter(Boolean);
  return table(null, rows, "values");
}

const hasSeeds = list(data.seeds).length > 1;
frame.sign({ created: data.created, version: data.version });
document.getElementById("view").replaceChildren(
  html("div", { class: "title-page" }, html("h1", {}, data.title || "Comparison"),
    html("p", { class: "deck" }, `${plural(systems.length, "system")}, ${data.budget} of training each, `
      + `${plural(data.sentences ?? 0, "test sentence")}. ${data.verdict ?? ""}`),
    data.about && html("p", { class: "deck" }, data.about)),
  ...[
    section("results", "Results", [
      "Thick lines hold 95 % of the scores on resampled test sets."
        + (hasSeeds ? " Small circles are the seeds; the score is their mean." : ""),
      "Rising: the last third of the training raised the validation score by more than 1 %, so more training would help."],
    intervals(systems, metrics), resultTable()),
    section("curves", "Learning curves", ["Validation score while training. The best system is in red; point at a "
      + "name or a line to see another one.", "The curve of fine-tuning continues that of the model it starts from."],
    curves(systems, metrics)),
    section("pairs", "Pairs", "Score of the row minus score of the column. Filled: significant (paired bootstrap, "
      + "p < 0.05). Point at a cell for its interval.", systems.length > 1 && grid(systems, metrics, list(data.differences))),
    section("published", "Published", "The results of the papers, on their data and machines, beside the systems here that "
      + "they describe. Scores on different test sets cannot be compared.", publishedTable()),
    section("complexity", "Cost of a layer", "Operations and sequential steps of one layer as a function of the length n, "
      + "measured: the exponent is the slope between the lengths, on logarithmic axes.", complexityTable(data.complexity)),
    section("reach", "Reach", "How strongly a position of the encoder's output depends on an input at a distance: the norm "
      + "of the gradient in the trained encoder, relative to distance 0.", reachCurves(data.reach)),
    section("samples", "Sentences", "The first test sentences that the systems translate differently.", samples()),
    section("method", "Method", null, systems.length > 0 && method()),
  ].filter(Boolean));
