// Word alignment: pointing at a word on one side highlights and names the words that are aligned with it on the other.
import { html, number } from "../common/draw.js";
import { details } from "./output.js";

const POINT = "Point at a word, or move to it with the keyboard, to see the word that it is aligned with.";

const percent = (share) => `${number(100 * share, share < 0.0995 ? 1 : 0)}\u00a0%`;
const quoted = (texts) => texts.map((text) => `“${text}”`).join(" and ");

// `source` is the editor of the text, `output` the view of the translation. `follow(parts, sentences)` sets the parts
// that `output` shows, and the sentences of the source text with their positions.
function counterparts(source, output) {
  const says = html("p", { class: "says", role: "status" }, POINT);
  let [parts, homes, places] = [[], [], []]; // homes: for each source word, its part and its index in the part

  function follow(shown, sentences) {
    parts = shown;
    homes = parts.flatMap(({ answer, isStale }, part) =>
      (answer && !isStale ? details(answer).sources.map((_, word) => ({ part, word })) : []));
    places = homes.map(({ part, word }) => {
      const { start, end } = details(parts[part].answer).sources[word];
      return { start: sentences[part].start + start, end: sentences[part].start + end };
    });
    source.setWords(places);
    says.textContent = POINT;
    says.hidden = !parts.length;
  }
  function forget() {
    source.light([]);
    output.mark(() => false, () => false);
    says.textContent = POINT;
  }
  function light(part, sourceWords, targetWords, isFromTarget) {
    source.light(homes.flatMap((home, index) =>
      (home.part === part && sourceWords.includes(home.word) ? [index] : [])));
    const isOne = (home) => home.part === part && targetWords.includes(home.word);
    output.mark((home) => isFromTarget && isOne(home), (home) => !isFromTarget && isOne(home));
  }
  const cut = (text, found, words) => words.map((word) => text.slice(found[word].start, found[word].end));

  // `home`: part and index of a word of the translation; null: no word.
  function pointAtTarget(home) {
    if (home === null || home.word === null || parts[home.part].isStale) return forget();
    const { answer } = parts[home.part];
    const { places: written, sources, shares, links } = details(answer);
    const found = links.filter(([, to]) => to === home.word).map(([from]) => from);
    const [word] = cut(answer.text, written, [home.word]);
    light(home.part, found, [home.word], true);
    const rendered = found.length ? quoted(cut(answer.source, sources, found)) : "no word of the source";
    says.textContent = `“${word}” translates ${rendered}.`
      + (shares[home.word] === null ? "" : ` Probability: ${percent(shares[home.word])}.`);
  }
  // `index`: index of a word of the source text; null: no word.
  function pointAtSource(index) {
    if (index === null || !homes[index]) return forget();
    const { part, word } = homes[index];
    const { answer } = parts[part];
    const { places: written, sources, links } = details(answer);
    const found = links.filter(([from]) => from === word).map(([, to]) => to);
    light(part, [word], found, false);
    const rendering = found.length ? quoted(cut(answer.text, written, found)) : "no word of the translation";
    says.textContent = `${quoted(cut(answer.source, sources, [word]))} is translated by ${rendering}.`;
  }
  // Highlights the word at the character position `place` of the source text.
  function pointAtPlace(place) {
    const index = places.findIndex(({ start, end }) => start <= place && place <= end);
    pointAtSource(index < 0 ? null : index);
  }
  return { says, follow, pointAtTarget, pointAtSource, pointAtPlace };
}

export { counterparts };
