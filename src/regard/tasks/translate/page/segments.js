// Divides a text into the sentences that are translated separately; line breaks and spaces between them are kept.

// The same rules as `split_sentences` in text/words.py, where they are explained. The browser needs its own copy,
// because the text is divided again after each key; a test compares both.
const MARK = /[.!?…؟۔।॥]["'”’»)\]」』）]*\s+(?=\S)|[。！？।॥](?![。！？।॥"'”’»)\]」』）])/gu;
const BEFORE = 24;
const LETTER = "(?![\\p{Nd}\\u0900-\\u{10ffff}])[\\p{L}\\p{N}]";
const ABBREVIATIONS =
  "Mr Mrs Ms Mx Dr Dra Prof St Ste Sta Sr Sra Srta Jr Sig Sigg Dott Avv Ing Dipl Hr Fr Mme Mlle MM Rev Hon Gen Col " +
  "Capt Lt Sgt Gov Mt vs cf ca etc al bzw usw ggf evtl inkl dhr mevr проф др им";
const SHORTENED = new RegExp(`(?:^|[\\s.(\\[/"“„«–-])['’]?(?:${LETTER}|${ABBREVIATIONS.replaceAll(" ", "|")})$`, "u");
const COUNTED = new RegExp(`(?:^|[\\s.(\\[/"“„«–-])(?:(?:${LETTER}){1,4}|\\p{Nd}\\p{Nd}?)$`, "u");
const ORDINAL = new RegExp(
  "(?:^|[,;:.!?–-]\\s+|[(\\[]|\\.[/–-]|\\p{Nd}\\.\\s+[\\p{L}\\p{N}]+\\s+" +
  "|(?<![\\p{L}\\p{N}])(?:(?<!i )am|im|vom|zum|zur|beim|ab|seit|de[mnrs]|die|das|eine?[mnr]?|jede[mnrs]?)\\s+)" +
  "(?:\\p{Nd}\\p{Nd}?|[ivx]+)$",
  "iu",
);

// Whether a sentence ends at `mark`, a match of MARK in a line.
function ends(line, mark) {
  const after = String.fromCodePoint(line.codePointAt(mark.index + mark[0].length) ?? 0);
  if (/(?!\p{Script=Georgian})\p{Ll}/u.test(after)) return false;
  if (!mark[0].startsWith(".")) return true;
  const before = line.slice(Math.max(0, mark.index - BEFORE), mark.index);
  if (/\p{Nd}/u.test(after) && COUNTED.test(before)) return false;
  return !SHORTENED.test(before) && !ORDINAL.test(before);
}

const UNSPACED = ["zh", "ja", "th", "lo", "km", "my"];

// The sentences of a text as { text, start, end }; `start` and `end` are positions in the text.
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
    for (const end of line.matchAll(MARK)) {
      if (!ends(line, end)) continue;
      add(start, from + end.index + end[0].length);
      start = from + end.index + end[0].length;
    }
    add(start, to);
    from = to + 1;
  }
  return found;
}

// The text to insert before the translation of a sentence: the same line breaks, or a space if the language has spaces.
function gap(whole, sentences, index, language) {
  const before = whole.slice(sentences[index - 1]?.end ?? 0, sentences[index].start);
  if (before.includes("\n") || index === 0) return before;
  return UNSPACED.includes(language.split("-")[0]) ? "" : before || " ";
}

// The index of the sentence at a position of the text; between two sentences, the first of them.
const at = (sentences, place) => Math.max(0, sentences.findLastIndex(({ start }) => start <= place));

export { split, gap, at };
