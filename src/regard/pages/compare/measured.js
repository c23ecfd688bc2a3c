// Measurements of architectures: the cost of a layer by length, and how far a gradient reaches.
import { html, isNumber, number, table } from "../common/draw.js";
import { chart, logTicks } from "./lines.js";

const exponent = (value) => (isNumber(value) ? [html("em", {}, "n"), html("sup", {}, number(value, 2))] : "–");

function complexityTable(rows) {
  if (!rows?.length) return null;
  return html("div", { class: "wide" }, table(
    ["layer", "operations", "measured", "sequential", "measured", "longest path", "measured"],
    rows.map((row) => [row.layer, row.operations, exponent(row.operations_exponent), row.sequential,
      exponent(row.sequential_exponent), row.path, exponent(row.path_exponent)]), "complexity"));
}

// Each system's reach: { name, distances, gradient }, on two logarithmic axes.
function reachCurves(reach) {
  const series = (reach ?? []).map(({ name, distances, gradient }) => ({ name, isBest: false, points: distances
    .map((distance, place) => [distance, gradient[place]]).filter(([distance, value]) => distance > 0 && value > 0) }))
    .filter(({ points }) => points.length > 1);
  if (!series.length) return null;
  const xs = series.flatMap(({ points }) => points.map(([x]) => x));
  const floor = 1e-8; // below it, a gradient of this precision is noise
  const kept = series.map((one) => ({ ...one, points: one.points.map(([x, y]) => [x, Math.max(y, floor)]) }));
  const ys = kept.flatMap(({ points }) => points.map(([, y]) => y));
  return html("figure", { class: "curves" }, chart(kept, {
    x: { title: "distance in tokens (logarithmic)", marks: logTicks(Math.min(...xs), Math.max(...xs)), of: Math.log10 },
    y: { marks: logTicks(Math.min(...ys), Math.max(...ys)), of: Math.log10, show: (value) => value.toExponential(0) },
  }, "Norm of the gradient against distance, one line for each architecture"));
}

export { complexityTable, reachCurves };
