// One picture: its predicted labels, where the model looked, and the attention of each patch in each layer and head.
import { html } from "../common/draw.js";
import * as frame from "../common/frame.js";
import { patchPanels, patchPicture, probabilityBars } from "../common/patches.js";
import { percent } from "../common/shading.js";

const data = JSON.parse(document.getElementById("data").textContent);
const verdict = data.verdict ?? { probabilities: {}, labels: [] };
const picture = verdict.pixels;
const layers = data.layers ?? [];
const map = verdict.patches?.attention;
const [rows, columns] = [map?.length ?? 1, map?.[0].length ?? 1];

function found() {
  const given = verdict.labels.map((label) => `${label}, ${percent(verdict.probabilities[label])}`).join("; ");
  return given ? `Classified as ${given}.` : "No label is probable enough.";
}
const folded = (weights) => Array.from({ length: rows }, (_, row) => weights.slice(row * columns, (row + 1) * columns));

// A picture on which one patch is chosen; beside it, the picture for each head, colored where this patch attends to.
function layersNode() {
  if (!layers.length || !picture) return null;
  const spot = html("i", { class: "spot" });
  const choice = patchPicture(picture, "the chosen patch").node;
  choice.classList.add("patch-choice");
  choice.append(spot);
  choice.tabIndex = 0;
  choice.setAttribute("role", "application");
  choice.setAttribute("aria-label", "Choose a patch with the arrow keys");
  const says = html("p", { class: "says", role: "status" });
  const heads = layers.map(({ name, heads: all }) => ({ name, heads: all.map((weights, head) => {
    const made = patchPicture(picture, "");
    return { ...made, weights, caption: all.length > 1 ? `head ${head}` : "mean of the heads" };
  }) }));
  let at = Math.floor(rows / 2) * columns + Math.floor(columns / 2);

  function choose(patch) {
    at = patch;
    const [row, column] = [Math.floor(patch / columns), patch % columns];
    Object.assign(spot.style, { top: `${(100 * row) / rows}%`, left: `${(100 * column) / columns}%`,
      height: `${100 / rows}%`, width: `${100 / columns}%` });
    says.textContent = `Row ${row + 1}, column ${column + 1} of ${rows} x ${columns} patches.`;
    heads.forEach((layer) => layer.heads.forEach(({ shade, weights }) => shade(folded(weights[patch]))));
  }
  function follow(event) {
    const box = choice.getBoundingClientRect();
    const place = (offset, size, count) => Math.min(count - 1, Math.max(0, Math.floor((count * offset) / size)));
    choose(place(event.clientY - box.top, box.height, rows) * columns
      + place(event.clientX - box.left, box.width, columns));
  }
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  choice.addEventListener("pointermove", follow);
  choice.addEventListener("pointerdown", follow);
  choice.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    const within = (place, step, count) => Math.min(count - 1, Math.max(0, place + step));
    const [down, across] = steps[event.key];
    choose(within(Math.floor(at / columns), down, rows) * columns + within(at % columns, across, columns));
  });
  choose(at);
  return html("div", { class: "patch-layers" }, html("div", {}, choice, says),
    html("div", {}, heads.map((layer) => html("div", { class: "patch-layer" }, html("h3", {}, layer.name),
      html("div", { class: "patch-heads" }, layer.heads.map(({ node, caption }) =>
        html("figure", { class: "patch-head" }, node, html("figcaption", {}, caption))))))));
}

const size = data.size ? `${data.size[0]} x ${data.size[1]} pixels, ` : "";
frame.sign(data);
document.getElementById("view").replaceChildren(...[
  html("div", { class: "title-page" }, html("h1", {}, data.title || "A picture"), html("p", { class: "deck" }, found())),
  picture && frame.section("looking", "Where it looked",
    [`The model reads the picture as ${size}${rows} x ${columns} patches. Parts with much attention are colored.`,
      "Attention rollout (Abnar and Zuidema 2020) multiplies the attention of all layers; a residual connection counts "
      + "as attention of one half to the same patch."],
    patchPanels(picture, verdict.patches)),
  frame.section("labels", "Labels", "The probabilities are calibrated on validation data.",
    Object.keys(verdict.probabilities).length > 0 && probabilityBars(verdict)),
  frame.section("layers", "Layers and heads",
    "Point at a patch, or choose it with the arrow keys: the pictures are colored where this patch attends to.",
    layersNode()),
].filter(Boolean));
