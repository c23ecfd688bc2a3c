// The common view of models that label texts: the text on the left, the result on the right.
import { html } from "../common/draw.js";
import { editor } from "../editor.js";
import { modelChoice } from "../models.js";
import { noticeView } from "../notice.js";
import { afterPause, newest } from "../pace.js";
import { welcomeView } from "../welcome.js";

const PAUSE = 300; // milliseconds

// `words`: the texts of the view. `ask(model, text, options)` gets an answer, `draw(answer)` returns its nodes, and
// `tell(answer)` its summary for screen readers.
function readingView(all, words, { ask, draw, tell }) {
  const asking = newest();
  const soon = afterPause(PAUSE, () => request());
  let model = all[0];

  const choice = modelChoice("Model", all, (chosen) => { model = chosen; begin(); });
  const source = editor({ label: words.field, placeholder: words.placeholder, onInput: changed });
  const found = html("div", { class: "finding" });
  const heard = html("p", { class: "unseen", role: "status" });
  const notice = noticeView(() => request());
  const welcome = welcomeView(words.welcome, (text) => { source.set(text); changed(); });
  const leaf = (side, name, body) => html("div", { class: `leaf ${side}` },
    html("div", { class: "leaf-head" }, html("span", { class: "tag" }, name)), body);
  const node = html("div", { class: "view" }, html("h1", { class: "unseen" }, words.title), choice.node,
    html("div", { class: "spread folio" }, leaf("source", words.given, source.node), leaf("target", words.found, found)),
    notice.node, heard, welcome.node);

  function show(answer) {
    found.classList.remove("stale");
    found.replaceChildren(...draw(answer));
    heard.textContent = `${tell(answer)}.`;
  }
  function changed() {
    const isEmpty = !source.text().trim();
    asking.stop();
    notice.clear();
    welcome.node.hidden = !isEmpty;
    found.classList.toggle("stale", !isEmpty);
    if (isEmpty) found.replaceChildren(html("p", { class: "running placeholder" }, words.nothing));
    if (isEmpty) soon.cancel();
    else soon();
  }
  async function request() {
    if (!source.text().trim()) return;
    try {
      show(await ask(model.id, source.text(), { signal: asking.begin() }));
    } catch (error) {
      notice.show(error);
    }
  }
  function begin() {
    choice.show(model);
    welcome.show(model.examples, model.source);
    changed();
  }
  function open() {
    begin();
    source.field.focus({ preventScroll: true });
  }
  return { node, open, close: asking.stop };
}

export { readingView };
