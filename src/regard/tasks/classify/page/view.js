// The view of classifiers: a text on the left; on the right, its labels, and the attention weights of its words.
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
const views = {
  classify: { title: "Classify", load: async () => (app, all) => readingView(all, WORDS, { ask, draw, tell }) },
};

export { views };
