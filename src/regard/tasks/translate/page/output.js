// The translation as words that the user can point at; words with a low probability are shaded.
import { words } from "../common/differences.js";
import { html } from "../common/draw.js";
import { ofWords, sureness } from "./places.js";
import * as running from "../common/running.js";

const SURE = 0.8; // words with at least this probability are not shaded

// The positions of the words of an answer and of its source, the probability of each word, and the alignment links.
const details = (() => {
  const found = new WeakMap();
  return (answer) => {
    if (!found.has(answer)) {
      const { source = [], target = words(answer.text).map(({ text }) => text), links = [] } = answer.alignment ?? {};
      const places = ofWords(target, answer.text);
      found.set(answer, { places, links, sources: ofWords(source, answer.source ?? ""),
        shares: answer.tokens && answer.log_probs ? sureness(places, answer) : places.map(() => null) });
    }
    return found.get(answer);
  };
})();

// The words of all parts as pieces of running text, and for each piece its home { part, word }. A part is
// { gap, answer }: the text before the translation, and the translation (null until it arrives).
function layOut(parts) {
  const [pieces, homes] = [[], []];
  let before = "";
  parts.forEach(({ gap, answer }, part) => {
    before += gap;
    if (!answer) {
      pieces.push({ text: "…", before });
      homes.push({ part, word: null });
      before = "";
      return;
    }
    let done = 0;
    details(answer).places.forEach(({ start, end }, word) => {
      if (start === end) return;
      pieces.push({ text: answer.text.slice(start, end), before: before + answer.text.slice(done, start) });
      homes.push({ part, word });
      [before, done] = ["", end];
    });
    before += answer.text.slice(done);
  });
  return { pieces, homes, rest: before };
}

function outputView({ label, onPoint, onChoose }) {
  const node = html("div", { class: "paper output" });
  let [shown, homes] = [null, []];

  function show(parts, language, isShaded) {
    const laid = layOut(parts);
    ({ homes } = laid);
    shown = running.text("target", laid.pieces, language, { label,
      onPoint: (index) => onPoint(index === null ? null : homes[index]), onChoose: (index) => onChoose(homes[index]) });
    shown.node.append(laid.rest);
    node.replaceChildren(shown.node);
    shown.toggle("pending", (index) => homes[index].word === null);
    shown.toggle("stale", (index) => parts[homes[index].part].isStale);
    shade(parts, isShaded);
  }
  function shade(parts, isShaded) {
    shown.shade(homes.map(({ part, word }) => {
      const share = word === null || !isShaded ? null : details(parts[part].answer).shares[word];
      return share === null ? 0 : Math.max(0, 1 - share / SURE);
    }));
  }
  // `isAt(home)`: the user points at this word; `isLinked(home)`: it is aligned with the word that the user points at.
  function mark(isAt, isLinked) {
    shown?.toggle("now", (index) => isAt(homes[index]));
    shown?.toggle("linked", (index) => isLinked(homes[index]));
  }
  function clear(message) {
    [shown, homes] = [null, []];
    node.replaceChildren(html("p", { class: "running placeholder" }, message));
  }
  return { node, show, shade, mark, clear };
}

export { details, outputView };
