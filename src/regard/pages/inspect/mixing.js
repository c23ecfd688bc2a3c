// Mixing of tokens by layer: the share of its own token in a hidden state, and the shares of other tokens.
import * as cursor from "../common/cursor.js";
import { html, figure, number, choice } from "../common/draw.js";
import * as heights from "./heights.js";
import * as weights from "../common/weights.js";

const MOST_TICKS = 9;

const named = (name) => html("p", { class: "panel-name" }, name);
// "encoder.0" becomes "layer 0".
const short = (name) => name.replace("encoder.", "").replace(/^(?=\d)/, "layer ");

function say({ matrix, rows, columns }, { row, column }) {
  if (row === null || column === null) return "Point at a cell to see how much of a hidden state comes from a token.";
  return `The state of “${rows[row]}” has ${number(100 * matrix[row][column], 1)} % of “${columns[column]}”.`;
}
function ownChart(layers) {
  const points = layers.map(({ own_mean: share }, index) => [index, share]);
  return heights.chart([{ name: "own token", kind: "of-encoder", points }], {
    xs: layers.map(({ name }) => short(name)), high: 1, across: "",
    label: `Own share by layer: ${points.map(([, share]) => figure(share)).join(", ")}.` });
}
function distanceChart({ name, by_distance: shares }) {
  const every = Math.ceil(shares.length / MOST_TICKS);
  const points = shares.map((share, far) => [far, share]);
  return heights.chart([{ name: short(name), kind: "of-encoder", points }], {
    xs: shares.map((_, far) => (far % every ? "" : far)), high: 1, across: "tokens away",
    label: `Share by distance at ${name}: ${shares.slice(0, 4).map(figure).join(", ")}.` });
}

function mixingView(book, data) {
  const layers = data?.layers ?? [];
  if (!layers.length) return null;
  const { texts } = book.seen("source", "tokens");
  const panels = cursor.panels({ name: "Shares of tokens in states", say });
  const far = html("div", {});
  panels.views.classList.add("wide");
  function show(index) {
    const { name, share } = layers[index];
    far.replaceChildren(distanceChart(layers[index]));
    panels.show([{ make: weights.map, view: { matrix: share, cell: 25, rows: texts, columns: texts,
      sides: { rows: "source", columns: "source" }, label: `Share of each token in each state at ${name}.` } }]);
  }
  const last = layers.length - 1;
  show(last);
  return html("figure", { class: "mixing" },
    html("div", { class: "two" },
      html("div", {}, named("Average share of a state's own token"), ownChart(layers)),
      html("div", {}, named("Share by distance in tokens"), far)),
    html("div", { class: "bar" },
      choice("States of", layers.map(({ name }, index) => [index, short(name)]), last, show)),
    panels.says, panels.views);
}

export { mixingView };
