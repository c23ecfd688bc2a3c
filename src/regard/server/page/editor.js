// A text field above a copy of its text. The copy sets the height of both, and its words can be highlighted, which is
// impossible in a text field. Highlights do not change the text nodes, so both have the same line breaks.
import { html } from "./common/draw.js";

const LIT = "counterpart";
const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];

// Callbacks: `onInput()`: other text; `onPoint(word or null)`: the pointer moved; `onCaret(place)`: the caret moved.
function editor({ label, placeholder, describedBy, onInput, onPoint = () => {}, onCaret = () => {} }) {
  const letters = document.createTextNode("");
  const copy = html("div", { class: "copy", "aria-hidden": "true", dir: "auto" }, letters);
  const field = html("textarea", { dir: "auto", "aria-label": label, "aria-describedby": describedBy, placeholder,
    spellcheck: "false", autocapitalize: "sentences", rows: 1 });
  const node = html("div", { class: "paper" }, copy, field);
  let ranges = [];

  // The zero-width space gives an empty last line its height.
  const paint = () => { letters.data = `${field.value}\u200b`; };
  function range({ start, end }) {
    const made = new Range();
    made.setStart(letters, start);
    made.setEnd(letters, end);
    return made;
  }
  const light = (indexes) => globalThis.Highlight
    && CSS.highlights.set(LIT, new Highlight(...indexes.map((index) => ranges[index])));
  function setWords(places) {
    ranges = places.map(range);
    light([]);
  }
  function set(text) {
    field.value = text;
    setWords([]);
    paint();
  }
  function wordAt({ clientX: x, clientY: y }) {
    const found = ranges.findIndex((one) => Array.from(one.getClientRects()).some(({ left, right, top, bottom }) =>
      left <= x && x <= right && top <= y && y <= bottom));
    return found < 0 ? null : found;
  }

  field.addEventListener("input", () => {
    setWords([]);
    paint();
    onInput();
  });
  let isWaiting = false; // the word at the pointer is searched at most once per frame
  field.addEventListener("pointermove", (event) => {
    if (isWaiting || !ranges.length) return;
    isWaiting = true;
    requestAnimationFrame(() => { isWaiting = false; onPoint(wordAt(event)); });
  });
  field.addEventListener("pointerleave", () => requestAnimationFrame(() => onPoint(null)));
  field.addEventListener("blur", () => onPoint(null));
  field.addEventListener("keyup", ({ key }) => { if (MOVES.includes(key)) onCaret(field.selectionStart); });
  field.addEventListener("click", () => onCaret(field.selectionStart));
  paint();
  return { node, field, set, setWords, light, text: () => field.value };
}

export { editor };
