// Pictures with labels: where a classifier looked, and what it found.
import { html } from "./draw.js";
import { shadedPicture } from "./looking.js";
import { percent, probabilityBars } from "./shading.js";

const SMALL = 32; // pixels; smaller pictures are enlarged without smoothing
// Attention is painted in a color, which is visible on dark and on bright pictures.
const glow = (share) => [226, 88, 34, 235 * share ** 1.2];

// A picture that `shade(map)` colors where the weights of `map`, rows of patches, are large.
function patchPicture(url, alt, map = null) {
  const made = shadedPicture(url, alt, glow);
  const image = made.node.querySelector("img");
  const sharpen = () => made.node.classList.toggle("tiny", image.naturalWidth <= SMALL);
  image.addEventListener("load", sharpen);
  made.shade(map);
  return made;
}

function panel(url, map, title, explanation) {
  return html("figure", { class: "patch-panel" }, patchPicture(url, title, map).node,
    html("figcaption", {}, html("strong", {}, title), explanation && html("span", {}, ` ${explanation}`)));
}

// The picture as the model reads it, and the two maps of its patches.
function patchPanels(url, { attention, rollout } = {}) {
  return html("div", { class: "patch-panels" },
    panel(url, null, "The picture", "as the model reads it."),
    rollout && panel(url, rollout, "Attention rollout", "through all layers, to each part of the picture."),
    attention && panel(url, attention, "Pooling", "the states of the last layer that the result is computed from."));
}

// Labeled pictures of a report: each with its map, the predicted label, and the right one.
function labeledGallery(shown) {
  if (!shown?.length) return null;
  return html("div", { class: "labeled-gallery" }, shown.map((one) => {
    const isRight = one.right.length === one.labels.length && one.right.every((label) => one.labels.includes(label));
    const found = one.labels.join(", ") || "no label";
    const map = one.patches?.rollout ?? one.patches?.attention ?? null;
    const shaded = patchPicture(one.pixels, `${found}: ${one.picture}`, map);
    shaded.node.addEventListener("pointerenter", () => shaded.shade(null));
    shaded.node.addEventListener("pointerleave", () => shaded.shade(map));
    return html("figure", { class: isRight ? "labeled" : "labeled wrong", title: one.picture }, shaded.node,
      html("figcaption", {}, html("strong", {}, found), html("span", {}, ` ${percent(one.probability)}`),
        !isRight && html("small", {}, `right: ${one.right.join(", ") || "no label"}`)));
  }));
}

const labeledMessage = (shown) => (shown?.length
  ? ["A correctly classified picture of each label, then the mistakes with the highest probability. Parts with much "
    + "attention (rollout) are colored. Point at a picture to see it without colors."] : []);

export { labeledGallery, labeledMessage, patchPanels, patchPicture, probabilityBars };
