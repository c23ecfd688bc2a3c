// Words and their counterparts: to point at a word on one page lights what belongs to it on the other, and says so.
import { html, number } from "../common/draw.js";
import { details } from "./output.js";

const POINT = "Point at a word, or move to it with the keyboard, to see the word that it is aligned with.";

const percent = (share) => `${number(100 * share, share < 0.0995 ? 1 : 0)}\u00a0%`;
const quoted = (texts) => texts.map((text) => `“${text}”`).join(" and ");

// `source` is an editor and `output` a facing page; `parts` are what the latter shows, and `sentences` their places in
// the text of the former.
function counterparts(source, output) {
  const says = html("p", { class: "says", role: "status" }, POINT);
  let [parts, homes, places] = [[], [], []]; // homes: for each word of the source its part, and its number in it

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

  // A word of the translation, by its home; null for none.
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
  // A word of the source, by its number; null for none.
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
  // The word at a place of the source's text.
  function pointAtPlace(place) {
    const index = places.findIndex(({ start, end }) => start <= place && place <= end);
    pointAtSource(index < 0 ? null : index);
  }
  return { says, follow, pointAtTarget, pointAtSource, pointAtPlace };
}

export { counterparts };
