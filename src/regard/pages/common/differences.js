// Compares two texts word by word, to find the words that only one of them has.
import { html } from "./draw.js";

const tidy = (text) => (text ?? "").trim().replace(/\s+/g, " ");

// Splits a text into words, each with the space after it; also in languages that are written without spaces.
function words(text, language) {
  let pieces;
  try {
    const segmenter = new Intl.Segmenter(language || undefined, { granularity: "word" });
    pieces = Array.from(segmenter.segment(text), ({ segment }) => segment);
  } catch {
    pieces = text.split(/(\s+)/).filter(Boolean);
  }
  const found = [];
  for (const piece of pieces) {
    if (!piece.trim() && found.length) found.at(-1).after += piece;
    else found.push({ text: piece, after: "" });
  }
  return found;
}

// For each word of both texts: true if it is not in their longest common subsequence.
function differences(one, other) {
  const common = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      common[i][j] = one[i].text === other[j].text
        ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const [left, right] = [one.map(() => true), other.map(() => true)];
  for (let i = 0, j = 0; i < one.length && j < other.length;) {
    if (one[i].text === other[j].text) left[i++] = right[j++] = false;
    else if (common[i + 1][j] >= common[i][j + 1]) i++;
    else j++;
  }
  return [left, right];
}

// The text, with each run of differing words in one <mark>.
function marked(list, isDifferent) {
  const nodes = [];
  list.forEach(({ text, after }, index) => {
    if (!isDifferent[index]) nodes.push(text, after);
    else if (isDifferent[index - 1]) nodes.at(-1).append(text);
    else nodes.push(html("mark", {}, text));
    if (isDifferent[index] && isDifferent[index + 1]) nodes.at(-1).append(after);
    else if (isDifferent[index]) nodes.push(after);
  });
  return nodes;
}

export { tidy, words, differences, marked };
