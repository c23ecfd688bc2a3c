// Classify: a text on the left page; on the facing page what the model takes it for, and which words weighed most.
import * as api from "./api.js";
import { html } from "./draw.js";
import { editor } from "./editor.js";
import { modelChoice } from "./models.js";
import { noticeView } from "./notice.js";
import { afterPause, newest } from "./pace.js";
import { percent, verdictView } from "./shading.js";
import { welcomeView } from "./welcome.js";

const PAUSE = 300; // milliseconds
const WELCOME = "Write a text to see what the model takes it for, and which of its sentences and words weighed most.";

const summary = ({ labels, probabilities }) =>
  labels.map((label) => `${label}, ${percent(probabilities[label])}`).join("; ") || "No label is likely enough";

function classifyView(app) {
  const all = app.models.filter(({ kind }) => kind === "classify");
  const asking = newest();
  const soon = afterPause(PAUSE, () => request());
  let model = all[0];

  const choice = modelChoice("Model", all, (chosen) => { model = chosen; begin(); });
  const source = editor({ label: "Text to classify", placeholder: "Type or paste a text", onInput: changed });
  const found = html("div", { class: "finding" });
  const heard = html("p", { class: "unseen", role: "status" });
  const notice = noticeView(() => request());
  const welcome = welcomeView(WELCOME, (text) => { source.set(text); changed(); });
  const leaf = (side, name, body) => html("div", { class: `leaf ${side}` },
    html("div", { class: "leaf-head" }, html("span", { class: "tag" }, name)), body);
  const node = html("div", { class: "view" }, html("h1", { class: "unseen" }, "Classify"), choice.node,
    html("div", { class: "spread folio" }, leaf("source", "Text", source.node), leaf("target", "Verdict", found)),
    notice.node, heard, welcome.node);

  function show(verdict) {
    found.classList.remove("stale");
    found.replaceChildren(html("p", { class: "running label" }, verdict.labels.join(", ") || "none of the labels"),
      verdictView(verdict));
    heard.textContent = `${summary(verdict)}.`;
  }
  function changed() {
    const isEmpty = !source.text().trim();
    asking.stop();
    notice.clear();
    welcome.node.hidden = !isEmpty;
    found.classList.toggle("stale", !isEmpty);
    if (isEmpty) found.replaceChildren(html("p", { class: "running placeholder" }, "The verdict appears here"));
    if (isEmpty) soon.cancel();
    else soon();
  }
  async function request() {
    if (!source.text().trim()) return;
    try {
      show(await api.classify(model.id, source.text(), { signal: asking.begin() }));
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

export { classifyView };
