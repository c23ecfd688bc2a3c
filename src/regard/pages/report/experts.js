// The load of experts: for each layer, a bar for each expert, beside a line at the equal share.
import { html, svg, isNumber, number, responsive } from "../common/draw.js";

const [HEIGHT, TOP, FLOOR] = [92, 14, 74];
const percent = (share) => `${number(100 * share, 1)} %`;
const layersOf = (found) => Object.entries(found ?? {})
  .filter(([, { load }]) => Array.isArray(load) && load.length > 0 && load.every(isNumber));

function message(found) {
  const layers = layersOf(found);
  if (!layers.length) return null;
  const [least, most] = [Math.min, Math.max].map((pick) => pick(...layers.map(([, { load }]) => pick(...load) * load.length)));
  return "The share of the tokens that each expert computed at the end of training. The line is the equal share: the " +
    `least busy expert had ${number(least, 2)} times, the busiest ${number(most, 2)} times as much.`;
}

function plot(name, { load, importance, dropped }, width) {
  const highest = Math.max(...load, 2 / load.length);
  const [room, y] = [width / load.length, (share) => FLOOR - ((FLOOR - TOP) * share) / highest];
  const gate = (expert) => (isNumber(importance?.[expert]) ? `, ${percent(importance[expert])} of the gate values` : "");
  return svg("svg", { role: "img", viewBox: `0 0 ${width} ${HEIGHT}`,
    "aria-label": `${name}: load ${load.map(percent).join(", ")}; ${percent(dropped ?? 0)} dropped` },
    load.map((share, expert) => svg("rect", {
      class: "bar-target", x: expert * room + 1, y: y(share), width: Math.max(1, room - 2), height: FLOOR - y(share),
    }, svg("title", {}, `expert ${expert}: ${percent(share)} of the tokens${gate(expert)}`))),
    room >= 24 && load.map((_, expert) => svg("text",
      { class: "tick", x: (expert + 0.5) * room, y: FLOOR + 14, "text-anchor": "middle" }, number(expert))),
    svg("line", { class: "best-line", x1: 0, x2: width, y1: y(1 / load.length), y2: y(1 / load.length) }));
}

const view = (found) => layersOf(found).map(([name, layer]) => {
  const host = html("div", { class: "plot" });
  responsive(host, (width) => host.replaceChildren(plot(name, layer, width)));
  return html("figure", {}, html("figcaption", {}, `${name}, ${percent(layer.dropped ?? 0)} dropped`), host);
});

const expertsView = (found) => (layersOf(found).length ? html("div", {}, view(found)) : null);

export { message, expertsView };
