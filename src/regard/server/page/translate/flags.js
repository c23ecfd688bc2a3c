// What is suspicious about a translation (tasks/answer.py), in plain words.
const WARNINGS = {
  empty: "The output is empty.",
  loops: "The output repeats itself.",
  copies: "The output copies the source instead of translating it.",
  "cut off": "The output is incomplete: the length limit was reached.",
  script: "The output is in a script that the target language does not use.",
  length: "The output is much longer or shorter than the source.",
};
const REMARKS = {
  retried: "The first attempt failed; this is a second one with safer settings.",
  split: "The text was too long and was translated in parts.",
};

// Sentences about an answer's flags: first what to be careful about.
const sentences = (flags = []) => [WARNINGS, REMARKS].flatMap((table) =>
  flags.filter((flag) => flag in table).map((flag) => table[flag]));
const isDoubtful = (flags = []) => flags.some((flag) => flag in WARNINGS);

export { sentences, isDoubtful };
