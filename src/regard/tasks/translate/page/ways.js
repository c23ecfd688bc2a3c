// The alternative translations of a sentence, of which the user can choose one.
import { differences, marked, words } from "../common/differences.js";
import { figure, html, isNumber } from "../common/draw.js";

// `onTake(answer)` is called when the user chooses a translation.
function waysView(onTake) {
  const title = html("h2", { class: "tag", id: "ways" }, "Alternative translations");
  const about = html("p", { class: "notes" });
  const list = html("ol", { class: "ways-list" });
  const node = html("div", { class: "ways", role: "region", "aria-labelledby": "ways" }, title, about, list);

  function way(answer, best, isTaken, language) {
    const [theirs, ours] = [best, answer].map(({ text }) => words(text, language));
    const [, isOther] = differences(theirs, ours);
    const button = html("button", { type: "button", class: "way", "aria-pressed": String(isTaken) },
      html("span", { class: "way-text", lang: language, dir: "auto" }, marked(ours, isOther)),
      isNumber(answer.score) && html("small", {}, figure(answer.score)));
    button.addEventListener("click", () => onTake(answer));
    return html("li", {}, button);
  }
  // `answers`: the translations, best first; `taken`: the one that the page shows now.
  function show(answers, taken, language, sentence) {
    const isFocused = list.contains(document.activeElement);
    const texts = new Set();
    const distinct = answers.filter(({ text }) => text && !texts.has(text) && texts.add(text));
    list.replaceChildren(...distinct.map((answer) => way(answer, answers[0], answer.text === taken.text, language)));
    if (isFocused) list.querySelector("[aria-pressed=true]")?.focus();
    about.textContent = distinct.length > 1
      ? `For “${sentence}”, best first, with their model scores. Choose one to use it.`
      : `The search found no other translation of “${sentence}”.`;
    node.hidden = false;
  }
  const clear = () => { node.hidden = true; };
  clear();
  return { node, show, clear };
}

export { waysView };
