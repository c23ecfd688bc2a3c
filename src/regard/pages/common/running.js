// A sentence as running text. Its words can be shaded by weight, marked, pointed at and reached by keyboard.
import { html } from "./draw.js";
import { roving } from "./keys.js";


// `pieces`: from sentence.js. `onPoint(index or null)` is called when the pointer or the keyboard focus moves;
// `onChoose(index)` on clicks and the Enter key. Without both, the text is only shown.
function text(side, pieces, language, { label, onPoint, onChoose } = {}) {
  const isLive = Boolean(onPoint || onChoose);
  const words = pieces.map(({ text, isMark }) => html("span", {
    class: `bit ${side}${isMark ? " mark-bit" : ""}`, role: isLive && "button" }, text));
  const about = isLive && { role: "group", "aria-label": label };
  const node = html("p", { class: "running", lang: language, dir: "auto", ...about },
    words.map((word, index) => [pieces[index].before, word]));
  words.forEach((word, index) => {
    if (onPoint) {
      word.addEventListener("pointerenter", () => onPoint(index));
      word.addEventListener("focus", () => onPoint(index));
      word.addEventListener("blur", () => onPoint(null));
    }
    if (onChoose) {
      word.addEventListener("click", () => onChoose(index));
      word.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onChoose(index);
      });
    }
  });
  if (onPoint) node.addEventListener("pointerleave", () => onPoint(null));
  if (isLive) roving(node, words);
  node.classList.toggle("choosable", Boolean(onChoose));

  // Shades each word by its share, from -1 to 1 (darkest).
  function shade(shares) {
    words.forEach((word, index) => {
      const share = shares?.[index] ?? 0;
      word.style.setProperty("--share", Math.min(1, Math.abs(share)).toFixed(3));
      word.classList.toggle("less", share < 0);
    });
  }
  const toggle = (name, test) => words.forEach((word, index) => word.classList.toggle(name, test(index)));
  return { node, words, shade, toggle };
}

export { text };
