// The vectors of the tokens of both sentences as points: their first two principal components.
import { html, svg, choice, number, linear, textWidth, responsive } from "../common/draw.js";

const FONT = 13;
const PAD = { x: 40, y: 18 };

// A free place for each label: right, left, above or below its point; if there is none, it is shown on hover only.
function placed(points, width, height) {
  const taken = points.map(([x, y]) => ({ left: x - 4, right: x + 4, top: y - 4, bottom: y + 4 }));
  const meets = (one) => taken.some((other) => one.left < other.right && other.left < one.right
    && one.top < other.bottom && other.top < one.bottom);
  return points.map(([x, y, text]) => {
    const long = textWidth(text, FONT, "--serif");
    const spots = [[x + 7, y + 4], [x - 7 - long, y + 4], [x - long / 2, y - 8], [x - long / 2, y + 17]];
    for (const [left, base] of spots) {
      const box = { left, right: left + long, top: base - FONT + 1, bottom: base + 3 };
      if (box.left < 0 || box.right > width || box.top < 0 || box.bottom > height || meets(box)) continue;
      taken.push(box);
      return { x: left, y: base };
    }
    return null;
  });
}
const range = (values) => [Math.min(...values), Math.max(...values)];

function panel(side, texts, plane) {
  const host = html("div", { class: "plot" });
  responsive(host, (width) => {
    const height = Math.min(340, Math.max(230, width * 0.7));
    const x = linear(range(plane.points.map(([one]) => one)), [PAD.x, width - PAD.x]);
    const y = linear(range(plane.points.map(([, two]) => two)), [height - PAD.y, PAD.y]);
    const points = plane.points.map(([one, two], index) => [x(one), y(two), texts[index]]);
    const spots = placed(points, width, height);
    host.replaceChildren(svg("svg", { role: "img", viewBox: `0 0 ${width} ${height}`,
      "aria-label": `${texts.length} tokens of the ${side} in two dimensions: ${texts.slice(0, 12).join(", ")}.` },
      svg("rect", { class: "ground", width: width - 1, height: height - 1, x: 0.5, y: 0.5 }),
      points.map(([cx, cy, text], index) => svg("g", { class: `point ${side}` },
        svg("circle", { cx, cy, r: 3.2 }, svg("title", {}, text)),
        spots[index] && svg("text", { ...spots[index], class: `word ${side}`, "font-size": FONT }, text)))));
  });
  const share = plane.explained.reduce((sum, one) => sum + one, 0);
  return html("div", {}, html("p", { class: "panel-name" }, html("strong", { class: side }, side),
    ` ${number(100 * share)} % of the variance`), host);
}

function scatterView(book, planes) {
  const shown = (planes ?? []).filter((one) => one.source || one.target);
  if (!shown.length) return null;
  const host = html("div", { class: "two" });
  // The lowest decoder vectors belong to the tokens that it reads, the others to the tokens that it predicts.
  function show({ name, source, target, reads }) {
    const texts = (side) => book.seen(side, "tokens").texts;
    host.replaceChildren(...[source && panel("source", texts("source"), source),
      target && panel("target", texts(reads ? "prefix" : "target"), target)].filter(Boolean));
    host.dataset.place = name;
  }
  show(shown[0]);
  return html("figure", { class: "scatter" }, html("div", { class: "bar" }, shown.length > 1
    && choice("Place", shown.map((one, index) => [index, one.name]), 0, (index) => show(shown[index]))), host);
}

export { scatterView };
