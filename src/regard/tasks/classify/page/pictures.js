// The view of classifiers of pictures: a picture on the left; on the right its labels, and where the model looked.
import * as api from "../api.js";
import { html } from "../common/draw.js";
import { patchPanels } from "../common/patches.js";
import { percent, probabilityBars } from "../common/shading.js";
import { modelChoice } from "../models.js";
import { noticeView } from "../notice.js";
import { newest } from "../pace.js";
import { pickerView } from "../picker.js";

function picturesView(app, all) {
  const asking = newest();
  let [model, picture] = [all[0], ""];

  const choice = modelChoice("Model", all, (chosen) => { model = chosen; begin(); });
  const picker = pickerView({ label: "Picture to classify",
    onPick: (url) => { picture = url; request(); }, onError: (message) => notice.tell(message) });
  const found = html("div", { class: "finding" });
  const heard = html("p", { class: "unseen", role: "status" });
  const notice = noticeView(() => request());
  const leaf = (side, name, body) => html("div", { class: `leaf ${side}` },
    html("div", { class: "leaf-head" }, html("span", { class: "tag" }, name)), body);
  const node = html("div", { class: "view" }, html("h1", { class: "unseen" }, "Classify pictures"), choice.node,
    html("div", { class: "spread folio" }, leaf("source", "Picture", picker.node), leaf("target", "Verdict", found)),
    notice.node, heard);

  function show(verdict) {
    const labels = verdict.labels.map((label) => `${label}, ${percent(verdict.probabilities[label])}`);
    found.classList.remove("stale");
    found.replaceChildren(
      html("p", { class: "running label" }, verdict.labels.join(", ") || "none of the labels"),
      probabilityBars(verdict), patchPanels(verdict.pixels ?? picture, verdict.patches));
    heard.textContent = `${labels.join("; ") || "No label is probable enough"}.`;
  }
  async function request() {
    if (!picture) return;
    notice.clear();
    found.classList.add("stale");
    try {
      const body = { model: model.id, pictures: picture, explain: true };
      const [verdict] = await api.answer("classify", body, { signal: asking.begin() });
      show(verdict);
    } catch (error) {
      notice.show(error);
    }
  }
  function begin() {
    choice.show(model);
    if (picture) request();
    else found.replaceChildren(html("p", { class: "running placeholder" }, "The labels appear here"));
  }
  function open() {
    begin();
    picker.open();
    picker.button.focus({ preventScroll: true });
  }
  function close() {
    asking.stop();
    picker.close();
  }
  return { node, open, close };
}

export { picturesView };
