// One series of a tagger of frames: labels over time, what each segment depends on, and attention between frames.
import * as attention from "../common/attention.js";
import { html, number, plural, table } from "../common/draw.js";
import * as frame from "../common/frame.js";
import * as timelines from "../common/timelines.js";

const [MOST, MOST_COLUMNS] = [60, 8];
const data = JSON.parse(document.getElementById("data").textContent);
const { segments = [], width = 0 } = data.tagged ?? {};
const labels = data.timelines?.labels ?? [];

// A cell per number of the frames, darker the more the label of the segment depends on it.
function influenceCells({ influence }, strongest) {
  return influence.map((share) => html("span", { class: "shaded" }, number(share, 2))).map((node, place) => {
    node.style.setProperty("--strength", Math.min(1, Math.max(0, influence[place]) / strongest).toFixed(3));
    return node;
  });
}

function segmentTable() {
  if (!segments.length) return null;
  const shown = segments.slice(0, MOST);
  const isShort = shown.every(({ influence }) => influence && influence.length <= MOST_COLUMNS);
  const strongest = Math.max(1, ...(isShort ? shown.flatMap(({ influence }) => influence) : []));
  const columns = isShort ? shown[0].influence.map((_, place) => `number ${place}`) : [];
  const rows = shown.map((one) => [
    html("span", { class: timelines.toneOf(labels, one.label) }, html("i", { class: "chip" }), one.label),
    `${number(one.start)} to ${number(one.end - 1)}`, `${number(100 * one.probability, 1)} %`,
    ...(isShort ? influenceCells(one, strongest) : [])]);
  return html("div", { class: "segments" }, table(["label", "frames", "probability", ...columns], rows, "numbers"),
    segments.length > MOST && html("p", { class: "notes" }, `And ${plural(segments.length - MOST, "more segment")}.`));
}

const frames = data.timelines?.series?.[0]?.frames ?? 0;
frame.sign(data);
document.getElementById("view").replaceChildren(...[
  html("div", { class: "title-page" }, html("h1", {}, data.title || "A series"),
    html("p", { class: "deck" }, `${plural(frames, "frame")} of ${plural(width, "number")}, ${plural(segments.length, "segment")}.`)),
  frame.section("timeline", "Labels over time", timelines.message(data.timelines), timelines.timelinesView(data.timelines)),
  frame.section("segments", "Segments",
    "Each number of the frames is replaced by its mean in turn. The figure is the decrease of the log-probability of the " +
    "label, as a mean over the frames of the segment.", segmentTable()),
  frame.section("attention", "Attention", "Self-attention: each row is a frame, each column a frame that it attends to.",
    attention.attentionView(data.attention)),
].filter(Boolean));
