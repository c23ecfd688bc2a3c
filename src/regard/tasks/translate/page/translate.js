// The translation view: translates a text while it is typed. Each sentence is requested once.
import * as api from "../api.js";
import { html, plural } from "../common/draw.js";
import { examplesOf } from "../examples.js";
import * as flags from "./flags.js";
import { folioView } from "./folio.js";
import { memory } from "../memory.js";
import { modelChoice, nameByLanguages, reverseOf, sides } from "../models.js";
import { noticeView } from "../notice.js";
import { afterPause, newest } from "../pace.js";
import * as segments from "./segments.js";
import { waysView } from "./ways.js";
import { welcomeView } from "../welcome.js";

const [PAUSE, WAYS_PAUSE] = [220, 450]; // milliseconds
// Number of sentences per request: few in the first request, so that the first translations appear soon; then more.
const [FIRST, AT_ONCE] = [2, 32];
const MOST_WAYS = 5;
const MOST_KNOWN = 2000; // sentences
const HEARD = 300; // screen readers get translations with fewer characters
const WELCOME = "The translation appears on the facing page as you type. Words of which the model was not sure are "
  + "shaded. Point at a word to see the word that it is aligned with.";

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// List items that explain the flags of each sentence.
function flagNodes(parts) {
  return parts.filter(({ answer, isStale }) => answer && !isStale && answer.flags?.length).map(({ answer }) =>
    html("li", { class: flags.isDoubtful(answer.flags) ? "flag doubtful" : "flag" },
      parts.length > 1 && [html("q", { dir: "auto" }, clip(answer.source, 48)), " "],
      flags.sentences(answer.flags).join(" ")));
}

function translateView(app, all) {
  const [known, ways, taken] = [memory(MOST_KNOWN), memory(MOST_KNOWN), memory(MOST_KNOWN)];
  const [asking, askingWays] = [newest(), newest()];
  const [soon, soonWays] = [afterPause(PAUSE, () => request()), afterPause(WAYS_PAUSE, () => requestWays())];
  let [sentences, last, here] = [[], [], 0];

  const model = () => all.find(({ id }) => id === app.values.model) ?? all[0];
  const answerTo = (text) => taken.get(model(), text) ?? known.get(model(), text);

  const choice = modelChoice("Direction", all, (chosen) => { app.set({ model: chosen.id }); begin(); },
    nameByLanguages);
  const folio = folioView({ onInput: changed, onSentence: go, onCaret: (place) => go(segments.at(sentences, place)),
    onClear: () => { put(""); folio.source.field.focus(); }, onSwap: swap, onInside: () => app.go("inside") });
  const notice = noticeView(() => request());
  const heard = html("p", { class: "unseen", role: "status" });
  const warnings = html("ul", { class: "flags" });
  const otherWays = waysView(take);
  const welcome = welcomeView(WELCOME, (text) => { put(text); folio.source.field.focus(); });
  const remarks = html("div", { class: "remarks" }, folio.says, warnings);
  const node = html("div", { class: "view" }, html("h1", { class: "unseen" }, "Translate"), choice.node, folio.node,
    notice.node, heard,
    html("div", { class: "below" }, remarks, otherWays.node, welcome.node));

  // ---- drawing
  // Until the translation of a changed sentence arrives, the previous one stays, marked as stale.
  function draw() {
    const text = folio.source.text();
    const parts = sentences.map((sentence, index) => {
      const answer = answerTo(sentence.text) ?? null;
      return { gap: segments.gap(text, sentences, index, model().target), answer: answer ?? last[index] ?? null,
        isStale: answer === null };
    });
    last = parts.map(({ answer }) => answer);
    folio.show(parts, sentences);
    warnings.replaceChildren(...flagNodes(parts));
    drawWays();
  }
  function drawWays() {
    const text = sentences[here]?.text;
    const found = text && ways.get(model(), text);
    if (found) otherWays.show(found, answerTo(text) ?? found[0], model().target, clip(text, 60));
    else otherWays.clear();
  }
  // Tells screen readers the translation or, if it is long, that it is done.
  function tell() {
    const text = folio.written();
    heard.textContent = text.length < HEARD ? text : `${plural(sentences.length, "sentence")} translated.`;
  }

  // ---- requests
  async function request() {
    const [signal, chosen] = [asking.begin(), model()];
    const missing = [...new Set(sentences.map(({ text }) => text))].filter((text) => !known.get(chosen, text));
    folio.busy(missing.length > 0);
    try {
      for (let [from, size] = [0, FIRST]; from < missing.length; from += size, size = Math.min(AT_ONCE, 2 * size)) {
        const texts = missing.slice(from, from + size);
        const answers = await api.translate(chosen.id, texts, { signal });
        answers.forEach((answer, index) => known.set(chosen, texts[index], answer));
        draw();
      }
      if (missing.length) tell();
    } catch (error) {
      notice.show(error);
    }
    if (!signal.aborted) folio.busy(false);
  }
  async function requestWays() {
    const [chosen, text] = [model(), sentences[here]?.text];
    if (!text || ways.get(chosen, text)) return drawWays();
    try {
      const [answer] = await api.translate(chosen.id, [text], { nbest: MOST_WAYS, signal: askingWays.begin() });
      ways.set(chosen, text, [answer, ...(answer.alternatives ?? [])]);
      drawWays();
    } catch { /* the request of the translation shows the error */ }
  }

  // ---- actions of the user
  function changed() {
    const text = folio.source.text();
    sentences = segments.split(text);
    here = segments.at(sentences, folio.source.field.selectionStart);
    app.set({ text, sentence: sentences[here]?.text ?? "" });
    last.length = Math.min(last.length, sentences.length);
    [asking, askingWays].forEach((one) => one.stop());
    notice.clear();
    welcome.node.hidden = sentences.length > 0;
    remarks.hidden = !sentences.length;
    const over = folio.measure(app.limit);
    draw();
    [soon, soonWays].forEach((one) => (over ? one.cancel() : one()));
    if (over) notice.tell(`the text is ${plural(over, "character")} too long`);
  }
  function go(sentence) {
    here = sentence;
    app.set({ sentence: sentences[here]?.text ?? "" });
    drawWays();
    soonWays();
  }
  function take(answer) {
    taken.set(model(), sentences[here].text, answer);
    draw();
    tell();
  }
  function put(text) {
    folio.source.set(text);
    changed();
  }
  function swap() {
    const text = folio.written();
    app.set({ model: reverseOf(model(), all).id });
    folio.source.set(text);
    begin();
  }
  function begin() {
    choice.show(model());
    folio.entitle(sides(model()), model(), Boolean(reverseOf(model(), all)));
    welcome.show(examplesOf(model()), model().source);
    last = [];
    changed();
  }
  function open() {
    folio.source.set(app.values.text);
    begin();
    folio.source.field.focus({ preventScroll: true });
  }
  const close = () => [asking, askingWays].forEach((one) => one.stop());
  return { node, open, close };
}

export { translateView };
