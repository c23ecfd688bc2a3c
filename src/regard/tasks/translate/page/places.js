// Finds the positions of words and tokens in a displayed text. The words may be spelled differently (normalized or in
// lower case), but they have the same order as in the text.
const MARK = "▁";
const NEAR = 24;

const fold = (text) => text.normalize("NFC").toLowerCase();
const skipSpace = (text, at) => at + text.slice(at).search(/\S|$/);

// The position of each word as { start, end }; start = end if the word is not found.
function ofWords(words, text) {
  const folded = fold(text).length === text.length ? fold(text) : text; // the same length keeps positions valid
  let at = 0;
  return words.map((word) => {
    const start = skipSpace(text, at);
    const found = folded.slice(start, start + word.length + NEAR).indexOf(fold(word));
    if (found < 0) return { start, end: start };
    at = start + found + word.length;
    return { start: start + found, end: at };
  });
}

// The probability of each word: that of its least probable token. (The product over its tokens would be low for every
// long word.)
function sureness(places, { text, tokens, log_probs: logs }) {
  const least = places.map(() => null);
  let at = 0;
  tokens.forEach((token, index) => {
    const piece = token.replaceAll(MARK, "");
    if (!piece || !Number.isFinite(logs[index])) return;
    const start = skipSpace(text, at);
    const end = text.startsWith(piece, start) ? start + piece.length : start + 1;
    if (text.startsWith(piece, start)) at = end;
    places.forEach((place, word) => {
      if (place.start < end && start < place.end) least[word] = Math.min(least[word] ?? 0, logs[index]);
    });
  });
  return least.map((log) => (log === null ? null : Math.exp(log)));
}

export { ofWords, sureness };
