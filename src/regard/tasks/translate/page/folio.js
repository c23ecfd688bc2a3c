// The two pages of the translation view: source text (left) and translation (right), with their headings and buttons.
import { copyButton } from "../copying.js";
import { counterparts } from "./counterparts.js";
import { html, number } from "../common/draw.js";
import { editor } from "../editor.js";
import { outputView } from "./output.js";

const LONG = 320; // number of characters above which the font is smaller
const SHADED = "regard-doubt";

const button = (name, kind, more) => html("button", { type: "button", class: kind, ...more }, name);
function remembered() { try { return localStorage.getItem(SHADED) !== "off"; } catch { return true; } }
function remember(isOn) { try { localStorage.setItem(SHADED, isOn ? "on" : "off"); } catch { /* not allowed */ } }

// A switch that shows or hides the shading of uncertain words; it is also the legend of the shading.
function doubtSwitch(onChange) {
  const box = html("input", { type: "checkbox", checked: remembered() });
  box.addEventListener("change", () => { remember(box.checked); onChange(box.checked); });
  const node = html("label", { class: "doubt" }, box, html("span", {}, "Uncertainty"),
    html("span", { class: "scale", "aria-hidden": "true" }, "low", html("i", {}), "high"));
  return { node, isOn: () => box.checked };
}

// Callbacks: `onInput()` when the text changes, `onSentence(part)` when a sentence of the translation is chosen,
// `onCaret(place)` when the caret moves, and `onClear()`, `onSwap()`, `onInside()` when their buttons are pressed.
function folioView({ onInput, onSentence, onCaret, onClear, onSwap, onInside }) {
  let [parts, language] = [[], ""];
  const count = html("span", { class: "count", id: "count" });
  const source = editor({ label: "Text to translate", placeholder: "Type or paste a text", describedBy: "count", onInput,
    onPoint: (word) => words.pointAtSource(word), onCaret: (place) => { onCaret(place); words.pointAtPlace(place); } });
  const output = outputView({ label: "Translation; use the arrow keys to move between words",
    onPoint: (home) => words.pointAtTarget(home), onChoose: ({ part }) => onSentence(part) });
  const words = counterparts(source, output);
  const doubt = doubtSwitch((isOn) => { if (parts.length) output.shade(parts, isOn); });
  const written = () => parts.map(({ gap, answer }) => gap + (answer?.text ?? "")).join("");
  const copy = copyButton("Copy", written);
  const buttons = { clear: button("Clear", "quiet"), inside: button("Look inside", "quiet"),
    swap: button("⇄", "swap", { "aria-label": "Swap the languages", title: "Swap the languages" }) };
  buttons.clear.addEventListener("click", onClear);
  buttons.swap.addEventListener("click", onSwap);
  buttons.inside.addEventListener("click", onInside);

  const tags = { source: html("span", { class: "tag" }), target: html("span", { class: "tag" }) };
  const leaf = (side, body, foot) => html("div", { class: `leaf ${side}` },
    html("div", { class: "leaf-head" }, tags[side]), body, html("div", { class: "leaf-foot" }, foot));
  const node = html("div", { class: "spread folio" },
    leaf("source", source.node, [count, buttons.clear]), buttons.swap,
    leaf("target", output.node, [doubt.node, buttons.inside, copy.node, copy.said]));

  function entitle(names, model, canSwap) {
    language = model.target;
    for (const side of ["source", "target"]) tags[side].textContent = names[side];
    source.field.lang = model.source;
    buttons.swap.hidden = !canSwap;
  }
  // `shown` are the parts of the translation, and `sentences` the sentences of the source text with their positions.
  function show(shown, sentences) {
    parts = shown;
    if (parts.length) output.show(parts, language, doubt.isOn());
    else output.clear("The translation appears here");
    words.follow(parts, sentences);
    for (const one of [copy.node, buttons.inside, buttons.clear]) one.disabled = !parts.length;
    doubt.node.hidden = !parts.length;
  }
  // Shows the number of characters of the text, and returns by how many it exceeds `most`.
  function measure(most) {
    const size = Array.from(source.text()).length;
    count.textContent = `${number(size)}${most < Infinity ? ` / ${number(most)}` : ""}`;
    count.classList.toggle("over", size > most);
    source.field.setAttribute("aria-invalid", size > most);
    node.classList.toggle("long", size > LONG);
    return Math.max(0, size - most);
  }
  const busy = (isBusy) => node.setAttribute("aria-busy", isBusy);
  return { node, says: words.says, source, written, entitle, show, measure, busy };
}

export { folioView };
