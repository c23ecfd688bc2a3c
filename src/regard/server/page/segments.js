// A text as the sentences in which it is translated. What stands between them, line breaks above all, is kept.

// As data/sentences.py has it: a mark that ends a sentence, what closes after it, and the space before a letter that is
// not small. Chinese and Japanese marks need no space.
const END = /(?<=[.!?…])["'”’»)\]]*\s+(?=[^\sa-zà-öø-ÿ])|(?<=[。！？])/gu;
const UNSPACED = ["zh", "ja", "th", "lo", "km", "my"];

// Sentences as { text, start, end }, by their places in the whole.
function split(whole) {
  const found = [];
  function add(from, to) {
    const text = whole.slice(from, to);
    const start = from + text.length - text.trimStart().length;
    if (text.trim()) found.push({ text: text.trim(), start, end: start + text.trim().length });
  }
  let from = 0;
  for (const line of whole.split("\n")) {
    const to = from + line.length;
    let start = from;
    for (const end of line.matchAll(END)) {
      add(start, from + end.index + end[0].length);
      start = from + end.index + end[0].length;
    }
    add(start, to);
    from = to + 1;
  }
  return found;
}

// What stands before a sentence in its translation: the same line breaks, and a space where the language has them.
function gap(whole, sentences, index, language) {
  const before = whole.slice(sentences[index - 1]?.end ?? 0, sentences[index].start);
  if (before.includes("\n") || index === 0) return before;
  return UNSPACED.includes(language.split("-")[0]) ? "" : before || " ";
}

// The sentence at a place of the text: the one that holds it, or else the one before.
const at = (sentences, place) => Math.max(0, sentences.findLastIndex(({ start }) => start <= place));

export { split, gap, at };
