// Histograms: source and target lengths on both sides of a vertical axis, and scores.
import { html, svg, isNumber, number, round, plural, linear, ticks, textWidth, responsive } from "./draw.js";

const MOST_BARS = 18;
const BAR = 13;
const SPINE = 22;

const countable = (pairs) => (pairs ?? [])
  .filter(([value, count]) => isNumber(value) && isNumber(count) && count > 0)
  .sort(([one], [other]) => one - other);

function median(pairs) {
  const half = pairs.reduce((sum, [, count]) => sum + count, 0) / 2;
  let seen = 0;
  return pairs.find(([, count]) => (seen += count) >= half)[0];
}

// The count of each bar of `size` lengths: bar 0 counts lengths 1 to size, and so on.
function bars(pairs, size, length) {
  const counts = new Array(length).fill(0);
  for (const [value, count] of pairs) counts[Math.max(0, Math.ceil(value / size) - 1)] += count;
  return counts;
}

function lengthFigure(lengths, names) {
  const sides = ["source", "target"]
    .map((side) => ({ side, name: names[side], pairs: countable(lengths?.[side]) }))
    .filter(({ pairs }) => pairs.length);
  if (!sides.length) return null;
  const longest = Math.max(...sides.map(({ pairs }) => pairs.at(-1)[0]));
  const size = Math.max(1, Math.ceil(longest / MOST_BARS));
  const rows = Math.max(1, Math.ceil(longest / size));
  for (const side of sides) side.counts = bars(side.pairs, size, rows);
  const said = sides.map(({ name, pairs }) => `${name} ${round(median(pairs))}, longest ${round(pairs.at(-1)[0])}`);
  const label = `Length in tokens. Median: ${said.join("; ")}.`;
  const host = html("div", { class: "plot" });
  responsive(host, (width) => host.replaceChildren(lengthNode(sides, size, rows, label, width)));
  return html("figure", {}, html("figcaption", {}, "Length in tokens"), host);
}

function lengthNode(sides, size, rows, label, width) {
  const [middle, top] = [width / 2, 30];
  const most = Math.max(...sides.flatMap((side) => side.counts));
  const reach = (count) => Math.max(1, ((middle - SPINE - 4) * count) / most);
  const lengthsOf = (row) => (size === 1 ? row + 1 : `${row * size + 1}–${(row + 1) * size}`);
  const barNode = (side, count, row) => count > 0 && svg("rect", {
    class: `bar-${side}`, y: top + row * BAR, height: BAR - 2, width: reach(count),
    x: side === "source" ? middle - SPINE - reach(count) : middle + SPINE,
  }, svg("title", {}, `${lengthsOf(row)} tokens: ${plural(count, "sentence")}`));
  return svg("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${top + rows * BAR + 4}` },
    Array.from({ length: rows }, (_, row) => (row % 2 === 0 || rows < 10) && svg("text",
      { class: "tick", x: middle, y: top + row * BAR + 9.5, "text-anchor": "middle" }, number(row * size + 1))),
    sides.map(({ side, name, pairs, counts }) => [
      svg("text", {
        class: `series-label ${side}`, x: side === "source" ? middle - SPINE : middle + SPINE, y: 16,
        "text-anchor": side === "source" ? "end" : "start",
      }, `${name}, median ${round(median(pairs))}`),
      counts.map((count, row) => barNode(side, count, row))]));
}

function scoreFigure(histogram) {
  const pairs = countable(histogram);
  if (!pairs.length) return null;
  const [least, middle, most] = [pairs[0][0], median(pairs), pairs.at(-1)[0]];
  const label = `Score of each output. Median ${round(middle)}, lowest ${round(least)}, highest ${round(most)}.`;
  const host = html("div", { class: "plot" });
  responsive(host, (width) => host.replaceChildren(scoreNode(pairs, middle, label, width)));
  return html("figure", {}, html("figcaption", {}, "Score of each output"), host);
}

function scoreNode(pairs, middle, label, width) {
  const [least, most] = [pairs[0][0], pairs.at(-1)[0]];
  const step = pairs.length > 1 ? Math.min(...pairs.slice(1).map(([value], index) => value - pairs[index][0])) : 1;
  const heights = ticks(0, Math.max(...pairs.map(([, count]) => count)), 3);
  const [top, bottom, left] = [30, 200, 10 + textWidth(round(heights.at(-1)), 12, "--sans")];
  const x = linear([least - step / 2, most + step / 2], [left, width - 12]);
  const y = linear([0, heights.at(-1)], [bottom, top]);
  const thick = Math.max(1, x(step) - x(0) - 2);
  const isRight = x(middle) > width / 2;
  return svg("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${bottom + 28}` },
    heights.map((mark) => [
      svg("line", { class: mark ? "grid" : "base", x1: left, x2: width, y1: y(mark), y2: y(mark) }),
      svg("text", { class: "tick", x: left - 6, y: y(mark) + 4, "text-anchor": "end" }, round(mark))]),
    pairs.map(([value, count]) => svg("rect", {
      class: "bar-target", x: x(value) - thick / 2, width: thick, y: y(count), height: bottom - y(count),
    }, svg("title", {}, `score ${round(value)}: ${plural(count, "output")}`))),
    ticks(least, most, 5).filter((mark) => x(mark) >= left && x(mark) <= width).map((mark) =>
      svg("text", { class: "tick", x: x(mark), y: bottom + 18, "text-anchor": "middle" }, round(mark))),
    svg("line", { class: "best-line", x1: x(middle), x2: x(middle), y1: top - 18, y2: bottom }),
    svg("text", {
      class: "series-label", x: x(middle) + (isRight ? -6 : 6), y: top - 9, "text-anchor": isRight ? "end" : "start",
    }, `median ${round(middle)}`));
}

export { lengthFigure, scoreFigure };
