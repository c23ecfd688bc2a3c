// The two sentences, as words or as tokens: their texts, and the matrices between them merged to match.
const MARK = "▁";
const SPECIAL = { "<s>": "start", "</s>": "end", "<unk>": "unknown", "<pad>": "padding" };
// Scripts without spaces between words: a token without the mark of a space can start a word.
const UNSPACED = ["Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar"];
const CONTINUES = new RegExp(`^(?![${UNSPACED.map((name) => `\\p{Script=${name}}`).join("")}])[\\p{L}\\p{N}]`, "u");

// The text to show for a token: without the mark of a space, and with a hyphen if it continues a word.
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

// The input of the decoder: the start token, then all target tokens but the last.
const shifted = ({ tokens, words, word_of }) => ({
  tokens: ["<s>", ...tokens.slice(0, -1)],
  words: ["<s>", ...words.slice(0, -1)],
  word_of: [0, ...word_of.slice(0, -1).map((word) => word + 1)],
});

// Merges tokens to words: the rows of a word to their mean, its columns to their sum.
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

// The start and end of each unit in the text; the end token has none.
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
  // One side by words or tokens (`unit`): the texts, their number, and for each token the index of its unit.
  function seen(side, unit) {
    const { texts, of } = units[unit](sides[side]);
    return { texts, of, count: texts.length };
  }
  // The units of a side as pieces of its text in order, each with the text before it; the end token is last.
  function pieces(side, unit) {
    const parts = seen(side, unit);
    const letters = Array.from(sides[side].text); // positions count code points, as in Python
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
