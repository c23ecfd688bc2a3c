// The view of taggers: a sentence on the left; on the right, its words with their labels, and the influence of words.
import * as api from "../api.js";
import { readingView } from "../labels/reading.js";
import { spansOf, taggedView } from "../inspect/tagged.js";

const WORDS = {
  title: "Tag", field: "Sentence to tag", placeholder: "Type or paste a sentence", given: "Sentence", found: "Labels",
  nothing: "The labels appear here",
  welcome: "Write a sentence to see the label of each word. Choose a word to see on which others its label depends.",
};

const draw = (tagged) => [taggedView(tagged)].filter(Boolean);
const tell = (tagged) => spansOf(tagged) || tagged.tags.join(", ");

const ask = (...asked) => api.explain("tag", ...asked);
const views = {
  // Runs that read frames are not for the page.
  tag: { title: "Tag", fits: ({ facts }) => !facts?.frame_width, load: async () => (app, all) => readingView(all, WORDS, { ask, draw, tell }) },
};

export { views };
