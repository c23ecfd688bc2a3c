// A chart of one line for each system. Two lines stand out: the best system, and the one that is pointed at.
import { html, svg, linear, line, round, shorten, spread, responsive } from "../common/draw.js";

const MARGIN = { left: 40, right: 170, top: 14, bottom: 40 };
const HEIGHT = 380;

// `series`: [{ name, points: [[x, y]], isBest }]. `axes`: { x, y }, each { title, marks, show, of }, where `of` is the scale
// of a value, e.g. its logarithm. `marks` are values.
function chart(series, axes, label) {
  const host = html("div", { class: "plot lines", tabindex: 0, role: "group", "aria-label": label });
  const focus = (name) => host.querySelectorAll("[data-name]").forEach((node) =>
    node.classList.toggle("here", node.dataset.name === name));
  const nameAt = (event) => event.target.closest?.("[data-name]")?.dataset.name;
  let place = -1;
  host.addEventListener("pointerover", (event) => focus(nameAt(event)));
  host.addEventListener("pointerleave", () => focus(null));
  host.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    place = (place + step + series.length) % series.length;
    focus(series[place].name);
  });

  function render(width) {
    const right = width - (width < 560 ? 96 : MARGIN.right);
    const bottom = HEIGHT - MARGIN.bottom;
    const scale = ({ marks, of }, range) => {
      const place = linear([of(marks[0]), of(marks.at(-1))], range);
      return (value) => place(of(value));
    };
    const [x, y] = [scale(axes.x, [MARGIN.left, right]), scale(axes.y, [bottom, MARGIN.top])];
    const labels = spread(series.map((one) => ({ one, y: y(one.points.at(-1)[1]) })), 15, bottom);
    host.replaceChildren(svg("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${HEIGHT}` },
      axes.y.marks.map((mark, index) => [
        svg("line", { class: index ? "grid" : "base", x1: MARGIN.left, x2: right, y1: y(mark), y2: y(mark) }),
        svg("text", { class: "tick", x: MARGIN.left - 8, y: y(mark) + 4, "text-anchor": "end" },
          (axes.y.show ?? round)(mark))]),
      axes.x.marks.map((mark) => svg("text", { class: "tick", x: x(mark), y: bottom + 18, "text-anchor": "middle" },
        (axes.x.show ?? round)(mark))),
      svg("text", { class: "tick", x: right, y: bottom + 36, "text-anchor": "end" }, axes.x.title),
      series.map((one) => {
        const points = one.points.map(([a, b]) => [x(a), y(b)]);
        return svg("g", { class: one.isBest ? "one best" : "one", "data-name": one.name },
          svg("path", { class: "hit", d: line(points) }), svg("path", { class: "line", d: line(points) }),
          points.map(([cx, cy]) => svg("circle", { class: "dot", cx, cy, r: 2.2 })));
      }),
      labels.map(({ one, y: at }) => svg("g", { class: one.isBest ? "one best" : "one", "data-name": one.name },
        svg("text", { class: "name", x: right + 10, y: at + 4 },
          shorten(one.name, width - right - 12, 12, "--sans"))))));
  }
  return responsive(host, render);
}

// Powers of ten that cover the values, with 2 and 5 between them where there are few.
function logTicks(low, high) {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const factors = to - from > 2 ? [1] : [1, 2, 5];
  const all = Array.from({ length: to - from + 1 }, (_, index) => from + index)
    .flatMap((exponent) => factors.map((factor) => factor * 10 ** exponent));
  const first = all.findLastIndex((mark) => mark <= low * 1.0001);
  const last = all.findIndex((mark) => mark >= high * 0.9999);
  return all.slice(Math.max(first, 0), last < 0 ? all.length : last + 1);
}

export { chart, logTicks };
