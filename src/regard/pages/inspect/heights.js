// Line charts over layers, and the entropy of the heads as such a chart.
import * as compare from "./compare.js";
import { html, svg, figure, round, ticks, linear, line, spread, responsive } from "../common/draw.js";

const MARGIN = { left: 36, right: 116, top: 14, bottom: 40 };
const HEIGHT = 190;

function seriesNode({ kind, points, rings = [] }, x, y) {
  return svg("g", { class: `series ${kind}` },
    svg("path", { class: "line", d: line(points.map(([at, value]) => [x(at), y(value)])) }),
    points.map(([at, value]) => svg("circle", { class: "dot", cx: x(at), cy: y(value), r: 2.6 })),
    rings.map(([at, value, text]) =>
      svg("circle", { class: "each", cx: x(at), cy: y(value), r: 3 }, svg("title", {}, text))));
}
// A line chart of values from 0 to `high`. `series` are { name, kind, points: [[place, value]], rings: [[place, value,
// text]] }; rings are single values. `xs` are the labels of the places, `across` is the title of the axis.
function chart(series, { xs, high, label, across }) {
  const host = html("div", { class: "plot" });
  responsive(host, (width) => {
    const right = width - MARGIN.right;
    const marks = ticks(0, high || 1, 4);
    const x = linear([0, Math.max(1, xs.length - 1)], [MARGIN.left + 12, right - 12]);
    const y = linear([0, marks.at(-1)], [HEIGHT, MARGIN.top]);
    const names = series.map(({ name, kind, points }) => ({ name, kind, y: y(points.at(-1)[1]) }));
    const tick = (text, left, top, anchor) =>
      svg("text", { class: "tick", x: left, y: top, "text-anchor": anchor }, text);
    const box = `0 0 ${width} ${HEIGHT + MARGIN.bottom}`;
    host.replaceChildren(svg("svg", { role: "img", "aria-label": label, viewBox: box },
      marks.map((mark) => [
        svg("line", { class: mark ? "grid" : "base", x1: MARGIN.left, x2: right, y1: y(mark), y2: y(mark) }),
        tick(round(mark), MARGIN.left - 8, y(mark) + 4, "end")]),
      xs.map((text, index) => tick(text, x(index), HEIGHT + 18, "middle")),
      tick(across, right, HEIGHT + 36, "end"),
      series.map((one) => seriesNode(one, x, y)),
      spread(names, 17, HEIGHT).map(({ name, kind, y: at }) =>
        svg("text", { class: `series-label ${kind}`, x: right + 8, y: at + 4 }, name))));
  });
  return host;
}

// One line per kind of attention: the mean of its heads; each head is a ring.
function entropyView(maps) {
  const known = maps.filter((map) => map.entropy && map.layer !== null);
  if (!known.length) return null;
  const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;
  const layers = [...new Set(known.map((map) => map.layer))].sort((one, other) => one - other);
  const series = Object.entries(compare.KINDS).map(([kind, { name }]) => {
    const own = known.filter((map) => map.kind === kind);
    return { name, kind: `of-${kind}`, points: own.map((map) => [map.layer, mean(map.entropy)]),
      rings: own.flatMap((map) => map.entropy.map((bits, head) =>
        [map.layer, bits, `${map.name}, head ${head}: ${figure(bits)} bits`])) };
  }).filter(({ points }) => points.length);
  const said = series.map(({ name, points }) => `${name} ${points.map(([, bits]) => figure(bits)).join(", ")}`);
  return html("figure", {},
    html("p", { class: "panel-name" }, "Entropy of the attention weights in bits; each ring is one head"),
    chart(series, { xs: layers, high: Math.max(...known.flatMap((map) => map.entropy)), across: "layer",
      label: `Entropy by layer. ${said.join("; ")}.` }));
}

export { chart, entropyView };
