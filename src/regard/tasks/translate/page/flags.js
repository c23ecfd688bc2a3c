// Explains the flags of a translation (`find_flags` in tasks/translate/translation.py) in sentences.
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

// One sentence per flag, warnings first.
const sentences = (flags = []) => [WARNINGS, REMARKS].flatMap((table) =>
  flags.filter((flag) => flag in table).map((flag) => table[flag]));
const isDoubtful = (flags = []) => flags.some((flag) => flag in WARNINGS);

export { sentences, isDoubtful };
