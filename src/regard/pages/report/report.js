// The report of a training run: reads the data of the page and lays out its sections. What is missing is left out.
import * as attention from "../common/attention.js";
import * as curve from "./curve.js";
import * as experts from "./experts.js";
import { tidy } from "../common/differences.js";
import { html, isNumber, number, figure, large, plural, duration, table } from "../common/draw.js";
import * as frame from "../common/frame.js";
import * as histograms from "../common/histograms.js";
import * as labels from "./labels.js";
import * as looking from "../common/looking.js";
import * as patches from "../common/patches.js";
import * as plane from "./plane.js";
import * as samples from "./samples.js";
import * as timelines from "../common/timelines.js";

const { section } = frame;
const data = JSON.parse(document.getElementById("data").textContent);
const list = (value) => (Array.isArray(value) ? value : []);
const languages = data.languages ?? {};
const names = data.sides ?? frame.names(languages);
const isTable = (value) => value !== null && typeof value === "object";

// ---- title page
const reached = (key) => [...list(data.steps), ...list(data.validations)]
  .reduce((most, record) => (isNumber(record[key]) ? Math.max(most, record[key]) : most), 0);

// What was trained, on what, how long it took, and the score: as much of it as is known.
function sentence() {
  const { parameters, pairs: counts } = data.card ?? {};
  const pairs = isNumber(counts?.train) ? counts.train : 0;
  const [steps, seconds] = [reached("step"), reached("seconds")];
  const cost = [seconds && duration(seconds), steps && plural(steps, "step")].filter(Boolean).join(" and ");
  const score = list(data.summary)[0];
  const side = (name) => html("span", { class: name }, names[name]);
  const known = [
    isNumber(parameters) && ` of ${large(parameters)} parameters`,
    languages.source && languages.target
      ? [" was trained to turn ", side("source"), " into ", side("target")] : " was trained",
    pairs > 0 && ` on ${plural(pairs, "training pair")}`,
    cost && ` in ${cost}`,
  ];
  if (!known.some((part) => part && part !== " was trained")) return null;
  return html("p", { class: "deck" }, "A model", known, ".", score && ` ${score.label}: ${score.value}.`);
}

// One short sample, a right one if there is any, set large on two facing pages.
function frontispiece() {
  const isShort = ({ source, output }) => source && output && source.split(/\s+/).length <= 12;
  const short = list(data.samples).filter(isShort);
  const sample = short.find(({ correct }) => correct) || short[0];
  const page = (side, text) => html("div", { class: `leaf ${side}` },
    html("span", { class: "tag" }, names[side]),
    html("p", { lang: languages[side], dir: "auto" }, tidy(text)));
  return sample && html("div", { class: "spread frontispiece" },
    page("source", sample.source), page("target", sample.output));
}

// A line break is possible after each | in the signature of a score.
const breakable = (text) => text.split("|").flatMap((part, index) => (index ? ["|", html("wbr", {}), part] : [part]));
const figuresRow = () => list(data.summary).length > 0 && html("dl", { class: "figures" }, data.summary.map((item) =>
  html("div", {}, html("dt", {}, item.label), html("dd", {}, item.value),
    item.note && html("dd", { class: "note" }, breakable(item.note)))));

// ---- tables
function validationTable() {
  const validations = list(data.validations);
  const columns = [["loss", "loss"], ["bleu", "BLEU"], ["chrf", "chrF"], ["span_f1", "span F1"], ["accuracy", "accuracy"],
    ["f1", "macro F1"], ["mrr", "MRR"], ["recall_1", "recall@1"], ["recall_5", "recall@5"]]
    .filter(([key]) => validations.some((one) => isNumber(one[key])));
  if (!columns.length) return null;
  const show = (value, text) => (isNumber(value) ? text(value) : "–");
  const rows = validations.map((one) => [
    [show(one.step, number), one.best && html("span", { class: "tag" }, " best")],
    ...columns.map(([key]) => show(one[key], figure))]);
  return html("details", {}, html("summary", {}, "Validations as a table"),
    table(["step", ...columns.map(([, title]) => title)], rows, "numbers"));
}

const planTable = () => list(data.plan).length > 0 && table(["setting", "value", "why"],
  data.plan.map(({ name, value, reason }) => [html("code", {}, name), String(value ?? "–"), reason]), "plan");

// Nested values become rows with dotted names.
function flatten(value, name) {
  if (!isTable(value)) return [[name, value === null || value === "" ? "–" : String(value)]];
  const entries = Object.entries(value);
  if (!entries.length) return [[name, "none"]];
  if (Array.isArray(value) && !value.some(isTable)) return [[name, value.join(", ")]];
  return entries.flatMap(([key, item]) => flatten(item, name ? `${name}.${key}` : key));
}
const folded = (title, value) => isTable(value) && Object.keys(value).length > 0 &&
  html("details", {}, html("summary", {}, title), table(null, flatten(value, ""), "values"));
function settings() {
  const entries = Object.entries(data.settings ?? {});
  const loose = entries.filter(([, value]) => !isTable(value));
  return [folded("general", Object.fromEntries(loose)), ...entries.map(([name, value]) => folded(name, value))];
}

// ---- the whole page
const sections = [
  section("learning", "Learning", curve.message(data), curve.learningCurve(data), validationTable()),
  section("plane", "Words", plane.message(data.plane), plane.planeView(data.plane)),
  section("experts", "Experts", experts.message(data.card?.layers), experts.expertsView(data.card?.layers)),
  section("timelines", "Time lines", timelines.message(data.timelines), timelines.timelinesView(data.timelines)),
  section("confusion", "Labels", labels.confusionMessage(data.labels),
    labels.confusionView(data.labels), labels.labelTable(data.labels)),
  section("calibration", "Calibration",
    "Of the answers given with a probability of 90 %, nine in ten should be right." +
      (isNumber(data.labels?.temperature) ? " The scores were divided by a temperature to achieve this." : ""),
    labels.calibrationView(data.labels)),
  section("documents", "Words and sentences",
    "The words with the largest attention weights in documents of each label; then some documents, with the weight " +
    "of each sentence beside it.",
    labels.labelWords(data.words), labels.documentsView(data.documents)),
  section("pictures", "Pictures", patches.labeledMessage(data.pictures), patches.labeledGallery(data.pictures)),
  section("captions", "Captions", looking.galleryMessage(data.captioned), looking.galleryView(data.captioned)),
  section("samples", "Samples", samples.message(list(data.samples)),
    samples.samplesView(list(data.samples), languages, names)),
  section("attention", "Attention",
    "Cross-attention: each row is a word of the output. Its weights show to which words of the source the model " +
    "attended when it generated that word.",
    attention.attentionView(data.attention)),
  section("distributions", "Lengths and scores",
    "Sentence lengths, and the scores that the model gives its outputs: the closer to 0, the more confident it is.",
    histograms.lengthFigure(data.lengths, names), histograms.scoreFigure(data.score_histogram)),
  section("plan", "Plan",
    "The settings that were chosen from the data and the machine, and the reason for each.", planTable()),
  section("settings", "Settings and card", "Everything needed to reproduce this run.",
    ...settings(), folded("model card", data.card)),
].filter(Boolean);
const nothing = html("p", { class: "nothing" }, "Nothing has been recorded in this run yet.");
frame.sign(data);
document.getElementById("view").replaceChildren(
  html("div", { class: "title-page" }, html("h1", {}, data.title || "Training report"),
    sentence(), frontispiece(), figuresRow()),
  ...(sections.length ? sections : [nothing]));
