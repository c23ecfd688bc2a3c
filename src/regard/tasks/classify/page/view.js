// The views of classifiers: one for models that read documents, and one for models that read pictures.
import * as api from "../api.js";
import { html } from "../common/draw.js";
import { readingView } from "../labels/reading.js";
import { percent, verdictView } from "../common/shading.js";

const WORDS = {
  title: "Classify", field: "Text to classify", placeholder: "Type or paste a text", given: "Text", found: "Verdict",
  nothing: "The labels appear here",
  welcome: "Write a text to see its labels, and which sentences and words had the largest attention weights.",
};

const draw = (verdict) =>
  [html("p", { class: "running label" }, verdict.labels.join(", ") || "none of the labels"), verdictView(verdict)];
const tell = ({ labels, probabilities }) =>
  labels.map((label) => `${label}, ${percent(probabilities[label])}`).join("; ") || "No label is probable enough";

const ask = (...asked) => api.explain("classify", ...asked);
const readsPictures = ({ facts }) => Boolean(facts?.picture_height);
const views = {
  classify: {
    title: "Classify", fits: (model) => !readsPictures(model) && !model.facts?.frame_width,
    load: async () => (app, all) => readingView(all, WORDS, { ask, draw, tell }),
  },
  pictures: {
    title: "Classify pictures", fits: readsPictures, load: async () => (await import("./pictures.js")).picturesView,
  },
};

export { views };
