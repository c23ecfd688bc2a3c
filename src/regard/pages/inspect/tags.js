// One sentence of a tagger: the labels of its words and what decided them, and the attention between words.
import * as attention from "../common/attention.js";
import { html, plural } from "../common/draw.js";
import * as frame from "../common/frame.js";
import { spansOf, taggedView } from "./tagged.js";

const data = JSON.parse(document.getElementById("data").textContent);
const tagged = data.tagged ?? {};
const deck = spansOf(tagged) || plural((tagged.tokens ?? []).length, "word");

frame.sign(data);
document.getElementById("view").replaceChildren(...[
  html("div", { class: "title-page" }, html("h1", {}, data.title || "A sentence"), html("p", { class: "deck" }, `${deck}.`)),
  frame.section("words", "Words and labels",
    "Choose a word: its likeliest labels, and the other words the darker, the less likely its label would be without them.",
    taggedView(tagged)),
  frame.section("attention", "Attention", "Each row is a word, and shows at which words it looked.",
    attention.attentionView(data.attention)),
].filter(Boolean));
