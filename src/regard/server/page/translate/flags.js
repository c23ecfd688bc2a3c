// What is suspicious about a translation (tasks/answer.py), in plain words.
const WARNINGS = {
  empty: "Nothing was written for this.",
  loops: "It repeats itself.",
  copies: "It copies the source instead of translating it.",
  "cut off": "It breaks off: the length limit was reached.",
  script: "It is written in another script than the language uses.",
  length: "It is far longer or shorter than the source.",
};
const REMARKS = {
  retried: "The first attempt went wrong; this is the second.",
  split: "It was too long for one piece and was translated in parts.",
};

// Sentences about an answer's flags: first what to be careful about.
const sentences = (flags = []) => [WARNINGS, REMARKS].flatMap((table) =>
  flags.filter((flag) => flag in table).map((flag) => table[flag]));
const isDoubtful = (flags = []) => flags.some((flag) => flag in WARNINGS);

export { sentences, isDoubtful };
