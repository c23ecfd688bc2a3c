// A table of next-token probabilities: rows are positions of the translation, columns are tokens of the vocabulary.
import * as cursor from "../common/cursor.js";
import { html } from "../common/draw.js";
import * as weights from "../common/weights.js";
import * as writing from "./writing.js";

const MOST_COLUMNS = 40;
const LEAST = 0.01;

// The tokens that are likely at any position, sorted by the position at which they are likeliest.
function vocabulary(steps) {
  const best = new Map();
  steps.forEach(({ shares }, row) => shares.forEach((share, token) => {
    if (share > (best.get(token)?.share ?? -1)) best.set(token, { share, row });
  }));
  const written = new Set(steps.map((step) => step.token));
  const worth = ([token, { share }]) => (written.has(token) ? 1 + share : share);
  return Array.from(best).filter((entry) => worth(entry) >= LEAST)
    .sort((one, other) => worth(other) - worth(one)).slice(0, Math.max(MOST_COLUMNS, written.size))
    .sort(([, one], [, other]) => one.row - other.row || other.share - one.share).map(([token]) => token);
}

function guessesView(book, steps) {
  if (!steps?.length) return null;
  const tokens = vocabulary(steps);
  const matrix = steps.map(({ shares }) => tokens.map((token) => shares.get(token) ?? 0));
  const view = {
    matrix, rows: steps.map((step, row) => `${row + 1} ${book.label(step.token)}`), columns: tokens.map(book.label),
    sides: { rows: "target", columns: "plain" }, most: 1, least: 20, cell: 27,
    write: (share) => (share >= 0.01 ? Math.min(99, Math.round(100 * share)) : null),
    label: `Probability of ${tokens.length} tokens at ${steps.length} positions of the translation.`,
  };
  function say(_, { row, column }) {
    if (row === null) return "Point at a cell, or use the arrow keys, to see a probability.";
    const at = column ?? weights.top(matrix[row]);
    return `At position ${row + 1}, “${view.columns[at]}” has a probability of ${writing.percent(matrix[row][at])}.`;
  }
  const panels = cursor.panels({ name: "Probabilities", say });
  panels.views.classList.add("wide");
  panels.show([{ make: weights.map, view }]);
  return html("figure", { class: "guess-table" }, panels.says, panels.views);
}

export { guessesView };
