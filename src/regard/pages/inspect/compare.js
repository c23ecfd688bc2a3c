// Views of the chosen raw weights, effective weights and their difference, and a warning if the raw weights are not
// identifiable.
import { AVERAGE } from "../common/attention.js";
import { html, figure, isNumber } from "../common/draw.js";
import * as weights from "../common/weights.js";

const ALL = "all";
const KINDS = {
  cross: { name: "cross", about: "Each token of the translation attends to the source when it is generated." },
  encoder: { name: "encoder self", about: "Each token of the source attends to the whole source." },
  decoder: { name: "decoder self", about: "Each token of the translation attends to the tokens before it." },
};

const chosenMaps = (maps, { kind, layer }) =>
  maps.filter((map) => map.kind === kind && (layer === ALL || map.layer === layer));
const effectiveOf = (map) => map.effective?.weights ?? map.weights;
const difference = (one, other) => one.map((line, row) => line.map((weight, column) => weight - other[row][column]));
const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;

function nameOf({ layer, head }, [map]) {
  const place = layer === ALL ? `all layers of ${KINDS[map.kind].name}-attention` : map.name;
  return `${place}, ${head === AVERAGE ? "average of all heads" : `head ${head}`}`;
}
// The matrix of the chosen layers and heads, by words or by tokens.
function matrixOf(book, maps, { head, unit }, weightsOf) {
  const matrices = maps.flatMap((map) => (head === AVERAGE ? weightsOf(map) : [weightsOf(map)[head]]));
  return book.between(weights.average(matrices), maps[0].rows, maps[0].columns, unit);
}
function viewsOf(book, maps, values) {
  const chosen = chosenMaps(maps, values);
  const [rows, columns] = [chosen[0].rows, chosen[0].columns].map((side) => book.seen(side, values.unit).texts);
  const isShifted = chosen[0].columns === "prefix";
  const sides = { rows: chosen[0].rows, columns: isShifted ? "target" : chosen[0].columns };
  const raw = matrixOf(book, chosen, values, (map) => map.weights);
  const most = weights.strongest(raw);
  const view = (matrix, name) => ({ matrix, rows, columns, sides, isShifted, most,
    label: weights.label(`${nameOf(values, chosen)}, ${name}`, matrix, rows, columns) });
  if (!chosen.some((map) => map.effective)) return { raw: view(raw, "raw weights") };
  const effective = matrixOf(book, chosen, values, effectiveOf);
  return { raw: view(raw, "raw weights"), effective: view(effective, "effective weights"),
    difference: view(difference(raw, effective), "difference, which has no effect") };
}

// A warning if the chosen raw weights are not identifiable; else a note that they are, if `isAsked`.
function warning(maps, { kind, layer, head }, isAsked) {
  const known = chosenMaps(maps, { kind, layer }).filter((map) => map.effective);
  if (!known.length) return null;
  const ofHeads = (name) => known.flatMap(({ effective }) =>
    (head === AVERAGE ? effective[name] : [effective[name][head]]));
  if (!ofHeads("dimension").some(Boolean)) {
    const [{ effective: { keys: count }, head_width: width }] = known;
    return isAsked && html("p", { class: "notes" }, `${count} tokens, head width ${width}: the weights `
      + "are identifiable, and effective attention is the same as raw attention.");
  }
  const correlations = ofHeads("correlation").filter(isNumber);
  const { warning: why } = known.find(({ effective }) => effective.warning).effective;
  return html("p", { class: "warning" }, html("strong", {}, "These weights are not identifiable. "),
    `${why[0].toUpperCase()}${why.slice(1)}.`,
    correlations.length > 0 && ` The correlation of raw and effective weights is ${figure(mean(correlations))}.`);
}

export { ALL, KINDS, chosenMaps, viewsOf, warning };
