"use strict";
// Histograms. Lengths face each other across a spine, as the two languages do; scores stand on a line.
const figures = (() => {
  const { html, svg, isNumber, number, figure, round, linear, ticks, textWidth, responsive } = draw;
  const MOST_BARS = 18;

  const countable = (pairs) => (pairs ?? []).filter(([value, count]) => isNumber(value) && isNumber(count) && count > 0)
    .sort(([one], [other]) => one - other);

  function median(pairs) {
    const half = pairs.reduce((sum, [, count]) => sum + count, 0) / 2;
    let seen = 0;
    return pairs.find(([, count]) => (seen += count) >= half)[0];
  }

  // Lengths in steps of `size`: bar 0 holds 1 to size, and so on.
  function bars(pairs, size, length) {
    const counts = new Array(length).fill(0);
    for (const [value, count] of pairs) counts[Math.max(0, Math.ceil(value / size) - 1)] += count;
    return counts;
  }

  const sidesOf = (lengths, names) => ["source", "target"]
    .map((side) => ({ side, name: names[side] || side, pairs: countable(lengths?.[side]) }))
    .filter(({ pairs }) => pairs.length);

  function lengthMessage(sides) {
    const said = sides.map(({ name, pairs }) => `${name} ${number(median(pairs))} (longest ${number(pairs.at(-1)[0])})`);
    return `Half of the sentences have at most this many tokens: ${said.join(", ")}.`;
  }

  function lengthFigure(lengths, names) {
    const sides = sidesOf(lengths, names);
    if (!sides.length) return null;
    const longest = Math.max(...sides.map(({ pairs }) => pairs.at(-1)[0]));
    const size = Math.max(1, Math.ceil(longest / MOST_BARS));
    const rows = Math.ceil(longest / size);
    for (const side of sides) side.counts = bars(side.pairs, size, rows);
    const most = Math.max(...sides.flatMap((side) => side.counts));
    const [thick, top] = [13, 30];

    const host = responsive(html("div", { class: "plot" }), (width) => {
      const [middle, spine] = [width / 2, 22];
      const reach = linear([0, most], [0, middle - spine - 4]);
      const rowNode = (row) => {
        const [first, last] = [row * size + 1, (row + 1) * size];
        const y = top + row * thick;
        const label = size === 1 ? number(last) : `${number(first)}–${number(last)}`;
        const isLabelled = rows <= 9 || row % 2 === 0;
        return svg("g", {},
          isLabelled && svg("text", { class: "tick", x: middle, y: y + 9.5, "text-anchor": "middle" }, number(first)),
          sides.map(({ side, counts }) => counts[row] > 0 && svg("rect", {
            class: `bar-${side}`, y, height: thick - 2, width: Math.max(1, reach(counts[row])),
            x: side === "source" ? middle - spine - Math.max(1, reach(counts[row])) : middle + spine,
          }, svg("title", {}, `${label} tokens: ${number(counts[row])} sentences`))));
      };
      const heads = sides.map(({ side, name, pairs }) => svg("text", {
        class: `series-label ${side}`, x: side === "source" ? middle - spine : middle + spine, y: 16,
        "text-anchor": side === "source" ? "end" : "start",
      }, `${name}, median ${number(median(pairs))}`));
      host.replaceChildren(svg("svg", { role: "img", "aria-label": lengthMessage(sides), viewBox: `0 0 ${width} ${top + rows * thick + 4}` },
        heads, Array.from({ length: rows }, (_, row) => rowNode(row))));
    });
    return html("figure", {}, html("figcaption", {}, "Length in tokens"), host);
  }

  function scoreMessage(pairs) {
    return `Half of the translations score at most ${figure(median(pairs))}; scores run from ${figure(pairs[0][0])} to ${figure(pairs.at(-1)[0])}.`;
  }

  function scoreFigure(histogram) {
    const pairs = countable(histogram);
    if (!pairs.length) return null;
    const steps = pairs.slice(1).map(([value], index) => value - pairs[index][0]);
    const step = steps.length ? Math.min(...steps) : 1;
    const most = Math.max(...pairs.map(([, count]) => count));
    const heights = ticks(0, most, 3);
    const [top, bottom, left] = [30, 200, 10 + textWidth(round(heights.at(-1)), 12, "--sans")];

    const host = responsive(html("div", { class: "plot" }), (width) => {
      const x = linear([pairs[0][0] - step / 2, pairs.at(-1)[0] + step / 2], [left, width - 2]);
      const y = linear([0, heights.at(-1)], [bottom, top]);
      const thick = Math.max(1, x(step) - x(0) - 2);
      const middle = median(pairs);
      const marks = ticks(pairs[0][0], pairs.at(-1)[0], 5).filter((mark) => x(mark) >= left && x(mark) <= width - 10);
      const isRight = x(middle) > width / 2;
      host.replaceChildren(svg("svg", { role: "img", "aria-label": scoreMessage(pairs), viewBox: `0 0 ${width} ${bottom + 28}` },
        heights.map((mark) => [
          svg("line", { class: mark ? "grid" : "base", x1: left, x2: width, y1: y(mark), y2: y(mark) }),
          svg("text", { class: "tick", x: left - 6, y: y(mark) + 4, "text-anchor": "end" }, round(mark))]),
        pairs.map(([value, count]) => svg("rect", {
          class: "bar-target", x: x(value) - thick / 2, width: thick, y: y(count), height: bottom - y(count),
        }, svg("title", {}, `score ${figure(value)}: ${number(count)} translations`))),
        marks.map((mark) => svg("text", { class: "tick", x: x(mark), y: bottom + 18, "text-anchor": "middle" }, round(mark))),
        svg("line", { class: "best-line", x1: x(middle), x2: x(middle), y1: top - 14, y2: bottom }),
        svg("text", { class: "series-label", x: x(middle) + (isRight ? -6 : 6), y: top - 6, "text-anchor": isRight ? "end" : "start" },
          `median ${figure(middle)}`)));
    });
    return html("figure", {}, html("figcaption", {}, "Score of each translation"), host);
  }

  return { lengthFigure, scoreFigure };
})();
