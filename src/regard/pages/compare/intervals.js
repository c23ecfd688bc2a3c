// Scores on one scale, one row for each system: a dot with its interval, and a small circle for each seed.
import { html, svg, number, linear, ticks, textWidth, shorten, responsive, choice } from "../common/draw.js";

const ROW = 26;
const score = (value) => number(value, 1);

function drawing(systems, key, label, width) {
  const room = Math.min(Math.max(...systems.map(({ name }) => textWidth(name, 13, "--sans"))) + 18, width * 0.4);
  const ends = systems.flatMap((one) => [one[key], ...(one.intervals?.[key] ?? []), ...(one.seeds?.[key] ?? [])]);
  const marks = ticks(Math.min(...ends), Math.max(...ends), width < 500 ? 4 : 8);
  const x = linear([marks[0], marks.at(-1)], [room, width - 46]);
  const bottom = 6 + ROW * systems.length;
  const said = systems.map((one) => `${one.name} ${score(one[key])}`).join(", ");
  return svg("svg", { role: "img", "aria-label": `${label}: ${said}.`, viewBox: `0 0 ${width} ${bottom + 26}` },
    marks.map((mark) => [
      svg("line", { class: "grid", x1: x(mark), x2: x(mark), y1: 4, y2: bottom }),
      svg("text", { class: "tick", x: x(mark), y: bottom + 18, "text-anchor": "middle" }, number(mark, mark % 1 ? 1 : 0))]),
    systems.map((one, place) => {
      const y = 6 + ROW * (place + 0.5);
      const interval = one.intervals?.[key];
      const seeds = one.seeds?.[key] ?? [];
      return svg("g", { class: one.isBest ? "row best" : "row" },
        svg("text", { class: "name", x: 0, y: y + 4.5 }, shorten(one.name, room - 10, 13, "--sans")),
        interval && svg("line", { class: "whisker", x1: x(interval[0]), x2: x(interval[1]), y1: y, y2: y }),
        seeds.length > 1 && seeds.map((value) => svg("circle", { class: "seed", cx: x(value), cy: y, r: 3 })),
        svg("circle", { class: "score", cx: x(one[key]), cy: y, r: 4.5 }),
        svg("text", { class: "tick", x: width, y: y + 4, "text-anchor": "end" }, score(one[key])),
        svg("title", {}, `${one.name}: ${score(one[key])}`
          + (interval ? `, 95 % interval ${score(interval[0])} to ${score(interval[1])}` : "")));
    }));
}

function intervals(systems, metrics) {
  if (!systems.length || !metrics.length) return null;
  const host = html("div", { class: "plot" });
  let [key, { label }] = metrics[0];
  const render = (width) => host.replaceChildren(drawing(systems, key, label, width));
  const toggle = choice("Score", metrics.map(([name, one]) => [name, one.label]), key, (name) => {
    [key, { label }] = metrics.find(([other]) => other === name);
    render(host.clientWidth);
  });
  return html("figure", { class: "intervals" }, html("div", { class: "bar" }, toggle), responsive(host, render));
}

export { intervals };
