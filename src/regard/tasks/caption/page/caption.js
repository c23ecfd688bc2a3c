// The view of captions: a picture on the left; on the right its caption, and for each word where the model looked.
import * as api from "../api.js";
import { figure, html, isNumber, languageName } from "../common/draw.js";
import { lookingView } from "../common/looking.js";
import { modelChoice } from "../models.js";
import { noticeView } from "../notice.js";
import { newest } from "../pace.js";
import { pickerView } from "../picker.js";

const NBEST = 4;
const NOTHING = "The caption appears here";

function captionView(app, all) {
  const asking = newest();
  let [model, picture, language] = [all[0], "", ""];

  const choice = modelChoice("Model", all, (chosen) => { model = chosen; language = ""; begin(); });
  const languages = html("div", {});
  const picker = pickerView({ label: "Picture to describe",
    onPick: (url) => { picture = url; request(); }, onError: (message) => notice.tell(message) });
  const found = html("div", { class: "finding" });
  const heard = html("p", { class: "unseen", role: "status" });
  const notice = noticeView(() => request());
  const leaf = (side, name, body) => html("div", { class: `leaf ${side}` },
    html("div", { class: "leaf-head" }, html("span", { class: "tag" }, name)), body);
  const node = html("div", { class: "view captioning" }, html("h1", { class: "unseen" }, "Caption"), choice.node,
    languages, html("div", { class: "spread folio" }, leaf("source", "Picture", picker.node),
      leaf("target", "Caption", found)), notice.node, heard);

  function others(alternatives = []) {
    if (!alternatives.length) return null;
    return html("ol", { class: "other-captions" }, alternatives.map(({ text, score }) =>
      html("li", {}, html("span", { lang: language || null, dir: "auto" }, text),
        isNumber(score) && html("small", {}, figure(score)))));
  }
  function show(answer) {
    found.classList.remove("stale");
    const look = answer.words ? answer : { ...answer, words: [] };
    found.replaceChildren(lookingView(answer.picture ?? picture, look),
      ...[others(answer.alternatives)].filter(Boolean));
    heard.textContent = `${answer.text}.`;
  }
  function clear() {
    found.classList.remove("stale");
    found.replaceChildren(html("p", { class: "running placeholder" }, NOTHING));
  }
  async function request() {
    if (!picture) return;
    notice.clear();
    found.classList.add("stale");
    try {
      const nbest = Math.min(NBEST, model.facts?.nbest ?? 1);
      const body = { model: model.id, pictures: picture, nbest, language, look: true };
      const [answer] = await api.answer("caption", body, { signal: asking.begin() });
      show(answer);
    } catch (error) {
      if (!api.isAborted(error)) clear();
      notice.show(error);
    }
  }
  function chooseLanguage() {
    const known = model.facts?.languages ?? [];
    language ||= known[0] ?? "";
    const select = html("select", {}, known.map((code) =>
      html("option", { value: code, selected: code === language }, languageName(code))));
    select.addEventListener("change", () => { language = select.value; request(); });
    languages.replaceChildren(...(known.length > 1
      ? [html("div", { class: "bar" }, html("label", { class: "field" }, "Language", select))] : []));
  }
  function begin() {
    choice.show(model);
    chooseLanguage();
    if (picture) request();
    else clear();
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

export { captionView };
