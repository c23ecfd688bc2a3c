// Positional encodings as a heat map, their dot products, and their rotation from position to position.
import { html, svg, figure, round, ticks, linear, responsive } from "../common/draw.js";
import * as weights from "../common/weights.js";

const LEFT = 34;
const DIALS = 8;

// A matrix as coloured cells with numbered sides.
function heat(matrix, { height, label, down, across }) {
  const host = html("div", { class: "plot" });
  const most = weights.strongest(matrix);
  responsive(host, (width) => {
    const [rows, columns] = [matrix.length, matrix[0].length];
    const y = linear([0, rows], [0, height]);
    const x = linear([0, columns], [LEFT, width]);
    const marks = (count) => ticks(0, count - 1, 4).filter((mark) => Number.isInteger(mark) && mark < count);
    host.replaceChildren(svg("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height + 34}` },
      svg("rect", { class: "ground", x: LEFT, y: 0, width: width - LEFT, height }),
      svg("g", { class: "fine", transform: `translate(${LEFT} 0) scale(${(width - LEFT) / columns} ${height / rows})`,
      }, weights.cells(matrix, 1, 0, most)),
      marks(rows).map((mark) => svg("text",
        { class: "tick", x: LEFT - 6, y: y(mark + 0.5) + 4, "text-anchor": "end" }, round(mark))),
      marks(columns).map((mark) => svg("text",
        { class: "tick", x: x(mark + 0.5), y: height + 15, "text-anchor": "middle" }, round(mark))),
      svg("text", { class: "tick", x: width, y: height + 31, "text-anchor": "end" }, across),
      svg("text", { class: "tick", x: LEFT, y: height + 31 }, `↓ ${down}`)));
  });
  return host;
}

// One pair of dimensions as two hands of a clock: at position `place`, and at `place + shift`.
function dial(rows, pair, place, shift) {
  const hand = (at, kind) => {
    const [sin, cos] = [rows[at][2 * pair], rows[at][2 * pair + 1]];
    return svg("line", { class: kind, x1: 0, y1: 0, x2: 30 * sin, y2: -30 * cos });
  };
  const angle = (at) => Math.atan2(rows[at][2 * pair], rows[at][2 * pair + 1]);
  const turn = ((angle(place + shift) - angle(place)) * 180 / Math.PI + 360) % 360;
  return html("div", { class: "dial" },
    svg("svg", { viewBox: "-36 -36 72 72", role: "img",
      "aria-label": `Dimensions ${2 * pair} and ${2 * pair + 1}: turned by ${turn.toFixed(0)} degrees` },
      svg("circle", { class: "face", r: 32 }), hand(place, "hand"), hand(place + shift, "hand later")),
    html("span", {}, html("b", {}, `${turn.toFixed(turn < 9.95 ? 1 : 0)}°`), ` dims ${2 * pair}, ${2 * pair + 1}`));
}
function rotation(rows) {
  const pairs = Math.floor(rows[0].length / 2);
  const shown = Array.from({ length: Math.min(DIALS, pairs) }, (_, index) =>
    Math.round((index * (Math.min(pairs, 40) - 1)) / Math.max(1, Math.min(DIALS, pairs) - 1)));
  const most = Math.min(20, rows.length - 1);
  const field = (label, max, value) => {
    const input = html("input", { type: "range", min: 0, max, value });
    return { input, node: html("label", { class: "field range" }, `${label} `, input, html("output", {})) };
  };
  const place = field("position p", rows.length - 1 - most, 0);
  const shift = field("distance k", most, 1);
  const dials = html("div", { class: "dials" });
  function show() {
    const [at, by] = [place, shift].map(({ input, node }) => {
      node.querySelector("output").textContent = input.value;
      return Number(input.value);
    });
    dials.replaceChildren(...shown.map((pair) => dial(rows, pair, at, by)));
  }
  [place, shift].forEach(({ input }) => input.addEventListener("input", show));
  show();
  return html("div", { class: "rotation" },
    html("p", { class: "panel-name" }, "Rotation from position p (thin) to p + k (bold): its angles are the same for all p"),
    html("div", { class: "bar" }, place.node, shift.node), dials);
}

function positionsView(data) {
  if (!data?.rows?.length) return null;
  const { kind, rows, dots } = data;
  const near = `neighbours ${figure(dots[0][1] ?? 0)}, the first and last position ${figure(dots[0].at(-1))}`;
  return html("figure", { class: "positions" },
    html("div", { class: "two" },
      html("div", {}, html("p", { class: "panel-name" }, "Each row is the encoding of one position"),
        heat(rows, { height: 240, label: `Position encodings, ${kind}: ${rows.length} positions.`, down: "position",
          across: "dimension" })),
      html("div", {}, html("p", { class: "panel-name" }, "Dot products of all pairs of positions"),
        heat(dots, { height: 240, label: `Dot products of positions: ${near}.`, down: "position", across: "position" }))),
    data.rotates && rotation(rows));
}

const EXPLAINED = {
  sinusoidal: "Self-attention alone does not know the order of the words, so each position has a vector of sines and "
    + "cosines. Each pair of dimensions rotates with the position, more slowly than the pair before it.",
  learned: "Each position has its own learned vector; neighbours are similar only if training made them so.",
  rotary: "Queries and keys are rotated by these angles, so that a score depends only on the distance. Rows show the "
    + "sine and cosine of each angle.",
};
const FORMULAS = {
  sinusoidal: ["PE(p, 2i) = sin(p / 10000²ⁱᐟᵈ)", "PE(p, 2i + 1) = cos(p / 10000²ⁱᐟᵈ)", "PE(p + k) = M(k) · PE(p)"],
  rotary: ["q(p) · k(r) depends only on p − r"],
};
const message = (data) => data && [EXPLAINED[data.kind],
  ...(FORMULAS[data.kind] ?? []).map((text) => html("code", { class: "formula" }, text))];

export { positionsView, message };
