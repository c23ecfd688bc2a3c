// The two sentences, as words or as tokens: their texts, and the matrices between them merged to match.
const MARK = "▁";
const SPECIAL = { "<s>": "start", "</s>": "end", "<unk>": "unknown", "<pad>": "padding" };
// Scripts that put no space between words: what goes on there is not the middle of a word.
const UNSPACED = ["Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar"];
const CONTINUES = new RegExp(`^(?![${UNSPACED.map((name) => `\\p{Script=${name}}`).join("")}])[\\p{L}\\p{N}]`, "u");

// A token for the eye. The mark of a space goes, and what goes on inside a word gets a hyphen instead.
function labeller({ source, target }) {
  const tokens = [...(source?.tokens ?? []), ...(target?.tokens ?? [])];
  const isMarked = tokens.some((token) => token.startsWith(MARK) && token.length > 1);
  return (token) => {
    if (SPECIAL[token]) return SPECIAL[token];
    if (token === MARK) return "␣";
    if (token.startsWith(MARK)) return token.slice(1);
    return isMarked && CONTINUES.test(token) ? `-${token}` : token;
  };
}

// What the decoder has read when it writes the target: the start, then all but the last token.
const shifted = ({ tokens, words, word_of }) => ({
  tokens: ["<s>", ...tokens.slice(0, -1)],
  words: ["<s>", ...words.slice(0, -1)],
  word_of: [0, ...word_of.slice(0, -1).map((word) => word + 1)],
});

// Rows become their mean (a word looks as its tokens do), columns their sum (it gets what they all get).
function merge(matrix, rows, columns) {
  const sums = Array.from({ length: rows.count }, () => new Array(columns.count).fill(0));
  const sizes = new Array(rows.count).fill(0);
  matrix.forEach((line, row) => {
    const to = sums[rows.of[row]];
    sizes[rows.of[row]] += 1;
    line.forEach((weight, column) => { to[columns.of[column]] += weight; });
  });
  return sums.map((line, row) => line.map((weight) => weight / sizes[row]));
}

// Where a unit stands in the text; the end has no place there.
function places({ spans, tokens }, { of, count }) {
  const found = Array.from({ length: count }, () => ({ start: Infinity, end: -1 }));
  spans.forEach(([start, end], token) => {
    if (SPECIAL[tokens[token]] === "end") return;
    const place = found[of[token]];
    [place.start, place.end] = [Math.min(place.start, start), Math.max(place.end, end)];
  });
  return found;
}

function open(data) {
  const label = labeller(data);
  const sides = { source: data.source, target: data.target, prefix: shifted(data.target) };
  const units = {
    words: ({ words, word_of }) => ({ texts: words.map((word) => SPECIAL[word] ?? word), of: word_of }),
    tokens: ({ tokens }) => ({ texts: tokens.map(label), of: tokens.map((_, index) => index) }),
  };
  // One side in one unit: the texts, how many there are, and for each token to which it belongs.
  function seen(side, unit) {
    const { texts, of } = units[unit](sides[side]);
    return { texts, of, count: texts.length };
  }
  // The side as pieces of its text in order, with what stands before each; the end last.
  function pieces(side, unit) {
    const parts = seen(side, unit);
    const letters = Array.from(sides[side].text); // places count whole characters, as Python does
    const cut = (from, to) => letters.slice(from, to).join("");
    let done = 0;
    return places(sides[side], parts).map(({ start, end }, index) => {
      if (end < 0) return { text: parts.texts[index], before: " ", isMark: true };
      const from = Math.max(start, done);
      const piece = { text: cut(from, end), before: cut(done, from) };
      done = Math.max(done, end);
      return piece;
    });
  }
  const between = (matrix, rows, columns, unit) => merge(matrix, seen(rows, unit), seen(columns, unit));
  const hasSubwords = ["source", "target"].some((side) => sides[side].tokens.length > sides[side].words.length);
  const spell = (tokens) => tokens.filter((token) => !SPECIAL[token]).join("").replaceAll(MARK, " ").trim();
  return { label, seen, pieces, merge, between, spell, hasSubwords };
}

export { open };
