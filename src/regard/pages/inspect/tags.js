// One sentence of a tagger: labels of the words, influence of words on labels, and attention between words.
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
    "Choose a word to see its most probable labels. Other words are darker the more the label depends on them.",
    taggedView(tagged)),
  frame.section("attention", "Attention", "Self-attention: each row is a word, each column a word that it attends to.",
    attention.attentionView(data.attention)),
].filter(Boolean));
