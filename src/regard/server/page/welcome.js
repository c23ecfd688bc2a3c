// Content of an empty view: example sentences and, until the user closes it, a hint that explains the view.
import { html } from "./common/draw.js";

const SEEN = "regard-welcomed";
const MOST = 3;

const isSeen = () => { try { return localStorage.getItem(SEEN) !== null; } catch { return false; } };
const remember = () => { try { localStorage.setItem(SEEN, "1"); } catch { /* not allowed: it appears again */ } };

// `onChoose(text)` is called when the user chooses an example.
function welcomeView(message, onChoose) {
  const hint = html("p", { class: "hint" }, message);
  const close = html("button", { type: "button", class: "quiet" }, "Got it");
  const first = html("div", { class: "first-visit", hidden: isSeen() }, hint, close);
  close.addEventListener("click", () => { remember(); first.hidden = true; });
  const list = html("div", { class: "examples" });
  const node = html("div", { class: "welcome" }, list, first);
  function show(examples = [], language = null) {
    node.hidden = false;
    list.replaceChildren(...(examples.length ? [html("h2", { class: "tag" }, "For example")] : []),
      ...examples.slice(0, MOST).map((text) => {
        const button = html("button", { type: "button", class: "example", lang: language, dir: "auto" }, text);
        button.addEventListener("click", () => onChoose(text));
        return button;
      }));
  }
  const say = (text) => { hint.textContent = text; };
  const hide = () => { node.hidden = true; };
  return { node, show, say, hide };
}

export { welcomeView };
