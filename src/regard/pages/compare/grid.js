// All pairs of systems: the difference of their scores, filled where it is significant.
import { html, number, choice } from "../common/draw.js";

const signed = (value) => `${value > 0 ? "+" : ""}${number(value, 1)}`;

function cell(row, column, found) {
  if (!found) return html("td", { class: "self" });
  const sign = found.first === row.name ? 1 : -1;
  const value = sign * found.difference;
  const better = found.better === null || found.better === undefined ? null
    : [found.first, found.second][found.better];
  const ends = (found.interval ?? []).map((end) => sign * end).sort((one, other) => one - other).map(signed);
  const kind = better === row.name ? "better" : better === column.name ? "worse" : "equal";
  const title = `${row.name} − ${column.name}: ${signed(value)}`
    + (ends.length ? `, 95 % interval ${ends.join(" to ")}, p = ${number(found.p, 3)}` : "");
  return html("td", { class: kind, title }, signed(value));
}

function grid(systems, metrics, differences) {
  const host = html("div", { class: "wide" });
  function render(metric) {
    const find = (one, other) => differences.find((pair) => pair.metric === metric
      && [pair.first, pair.second].includes(one.name) && [pair.first, pair.second].includes(other.name));
    host.replaceChildren(html("table", { class: "pairs" },
      html("thead", {}, html("tr", {}, html("td", {}), systems.map(({ name }) =>
        html("th", { scope: "col" }, html("span", {}, name))))),
      html("tbody", {}, systems.map((row) => html("tr", {}, html("th", { scope: "row" }, row.name),
        systems.map((column) => cell(row, column, row !== column && find(row, column))))))));
  }
  render(metrics[0][0]);
  return html("figure", {}, html("div", { class: "bar" }, choice("Score",
    metrics.map(([key, { label }]) => [key, label]), metrics[0][0], render)), host);
}

export { grid };
