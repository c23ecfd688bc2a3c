// Where words and tokens stand in a text as people see it. The model's own spelling of it may differ (normalised,
// perhaps in lower case), but both go through the text from left to right.
const MARK = "▁";
const NEAR = 24;

const fold = (text) => text.normalize("NFC").toLowerCase();
const skipSpace = (text, at) => at + text.slice(at).search(/\S|$/);

// For each word where it stands, as { start, end }; an empty stretch where it does not.
function ofWords(words, text) {
  const folded = fold(text).length === text.length ? fold(text) : text; // places must stay places
  let at = 0;
  return words.map((word) => {
    const start = skipSpace(text, at);
    const found = folded.slice(start, start + word.length + NEAR).indexOf(fold(word));
    if (found < 0) return { start, end: start };
    at = start + found + word.length;
    return { start: start + found, end: at };
  });
}

// For each word how sure the model was of it: the probability of its least likely token. (That of all tokens together would
// make long words doubtful for being long.)
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
