// Time lines of series of frames: the signal, the correct and the predicted labels, mistakes, and probabilities.
import { html, svg, isNumber, number, plural, linear, ticks, line, shorten, textWidth, responsive } from "./draw.js";

const TONES = 10;
const LEFT = 76;
const [TITLE, GAP] = [0, 9];
const HEIGHTS = { signal: 58, correct: 20, predicted: 20, mistakes: 5, shares: 26 };
const NAMES = { signal: "signal", correct: "correct", predicted: "predicted" };
const percent = (share) => `${number(100 * share, share > 0.995 || share < 0.1 ? 1 : 0)} %`;
const toneOf = (labels, label) => `tone tone-${Math.max(0, labels.indexOf(label)) % TONES}`;
const labelAt = (runs, frame) => (runs ?? []).find(([, start, end]) => start <= frame && frame < end)?.[0];
const listOf = (value) => (Array.isArray(value) ? value : []);

// The content of the figure, as a sentence.
function message(found) {
  const series = listOf(found?.series);
  if (!series.length) return null;
  const wrong = "Red marks below them show where the two differ.";
  return series.some(({ correct }) => listOf(correct).length)
    ? `The correct labels above, the predicted labels below. ${wrong}` : "The predicted label of every frame.";
}

// The stretches where the predicted label is not the correct one.
function mistakes(correct, predicted) {
  const cuts = [...new Set([...correct, ...predicted].flatMap(([, start, end]) => [start, end]))].sort((a, b) => a - b);
  return cuts.slice(1).map((end, index) => [cuts[index], end])
    .filter(([start]) => labelAt(correct, start) !== labelAt(predicted, start));
}

// ---- drawing
function band(runs, labels, x, y, height) {
  return svg("g", {}, runs.map(([label, start, end]) => {
    const [left, width] = [x(start), Math.max(x(end) - x(start), 0.6)];
    const fits = width > 22 && textWidth(label, 11.5, "--sans") < width - 8;
    const text = fits ? label : width > 34 ? shorten(label, width - 8, 11.5, "--sans") : "";
    return svg("g", { class: toneOf(labels, label) },
      svg("rect", { x: left, y, width: Math.max(width - 1, 0.6), height, rx: Math.min(3, width / 4) },
        svg("title", {}, `${label}: frames ${number(start)} to ${number(end - 1)}`)),
      text && svg("text", { class: "band-label", x: left + width / 2 - 0.5, y: y + height / 2 + 4, "text-anchor": "middle" },
        text));
  }));
}

function signal(curves, x, frames, y, height) {
  const values = curves.flat();
  const scale = linear([Math.min(...values), Math.max(...values)], [y + height, y]);
  const place = (index, count) => x(((index + 0.5) * frames) / count);
  return svg("g", {}, curves.map((curve, number) => svg("path", { class: `signal signal-${number % 3}`,
    d: line(curve.map((value, index) => [place(index, curve.length), scale(value)])) })));
}

function area(shares, x, frames, y, height) {
  const scale = linear([0, 1], [y + height, y]);
  const points = shares.map((share, index) => [x(((index + 0.5) * frames) / shares.length), scale(share)]);
  const closed = [[x(0), y + height], [x(0), points[0][1]], ...points, [x(frames), points.at(-1)[1]], [x(frames), y + height]];
  return svg("g", {}, svg("path", { class: "share-area", d: `${line(closed)}Z` }),
    svg("line", { class: "base", x1: x(0), x2: x(frames), y1: y + height, y2: y + height }));
}

// The rows that a series has, from top to bottom, with their places.
function rowsOf({ curves, correct, shares }) {
  const names = ["signal", "correct", "predicted", "mistakes", "shares"].filter((name) => ({
    signal: listOf(curves).length, correct: listOf(correct).length, mistakes: listOf(correct).length,
    shares: listOf(shares).length > 1, predicted: true,
  })[name]);
  let y = TITLE;
  return names.map((name) => {
    const row = { name, y, height: HEIGHTS[name] };
    y += HEIGHTS[name] + (name === "correct" || name === "predicted" ? 4 : GAP);
    return row;
  });
}

function lineNode(series, labels, width) {
  const { frames, correct, predicted, curves, shares, measure } = series;
  const [x, rows] = [linear([0, frames], [LEFT, width]), rowsOf(series)];
  const floor = rows.at(-1).y + rows.at(-1).height;
  const draw = {
    signal: ({ y, height }) => signal(curves, x, frames, y, height),
    correct: ({ y, height }) => band(correct, labels, x, y, height),
    predicted: ({ y, height }) => band(predicted, labels, x, y, height),
    mistakes: ({ y, height }) => svg("g", {}, mistakes(correct, predicted).map(([start, end]) =>
      svg("rect", { class: "mistake", x: x(start), y, width: Math.max(x(end) - x(start), 1), height }))),
    shares: ({ y, height }) => area(shares, x, frames, y, height),
  };
  const nameOf = (name) => (name === "shares" ? measure : NAMES[name]);
  const marks = ticks(0, frames, width < 500 ? 3 : 8).filter((mark) => mark <= frames);
  const crosshair = svg("line", { class: "crosshair", y1: 0, y2: floor });
  const said = isNumber(series.right) ? `${percent(series.right)} of ${plural(frames, "frame")} right` : plural(frames, "frame");
  const node = svg("svg", { role: "img", viewBox: `0 0 ${width} ${floor + 24}`, "aria-label": `${series.name}: ${said}` },
    rows.map((row) => [draw[row.name](row), nameOf(row.name) && svg("text",
      { class: "tick", x: LEFT - 12, y: row.y + row.height / 2 + 4, "text-anchor": "end" }, nameOf(row.name))]),
    marks.map((mark) => [
      svg("line", { class: "tick-line", x1: x(mark), x2: x(mark), y1: floor + 3, y2: floor + 7 }),
      svg("text", { class: "tick", x: x(mark), y: floor + 20, "text-anchor": mark === frames ? "end" : "middle" },
        number(mark))]),
    crosshair);
  return { node, crosshair, x };
}

// The labels at one frame, in words.
function describe({ frames, correct, predicted, shares, measure }, frame) {
  const count = listOf(shares).length;
  const share = count ? shares[Math.min(count - 1, Math.floor((frame * count) / frames))] : null;
  const given = `predicted ${labelAt(predicted, frame)}${isNumber(share) ? `, ${measure} about ${percent(share)}` : ""}`;
  const right = labelAt(correct, frame);
  return `Frame ${number(frame)}: ${right === undefined ? "" : `correct ${right}, `}${given}.`;
}

function seriesView(series, labels, onChoose) {
  const host = html("div", { class: "plot", tabindex: 0, role: "group",
    "aria-label": `Time line of ${series.name}; use the arrow keys to move through the frames` });
  const says = html("p", { class: "says", role: "status" }, "Point at a frame, or use the arrow keys, to see its labels.");
  let [view, here] = [null, 0];
  function show(frame) {
    here = Math.min(Math.max(frame, 0), series.frames - 1);
    const at = view.x(here + 0.5);
    view.crosshair.setAttribute("x1", at);
    view.crosshair.setAttribute("x2", at);
    says.textContent = describe(series, here);
    onChoose?.(here);
  }
  responsive(host, (width) => { view = lineNode(series, labels, width); host.replaceChildren(view.node); });
  host.addEventListener("pointermove", (event) => {
    const box = host.getBoundingClientRect();
    show(Math.floor(((event.clientX - box.left - LEFT) / Math.max(box.width - LEFT, 1)) * series.frames));
  });
  host.addEventListener("keydown", (event) => {
    const step = Math.max(1, Math.round(series.frames / 200));
    const to = { ArrowLeft: here - step, ArrowRight: here + step, Home: 0, End: series.frames - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
  const right = isNumber(series.right) && html("span", { class: "tag" }, `${percent(series.right)} right`);
  return html("figure", { class: "timeline" },
    html("figcaption", {}, series.name, right, html("span", { class: "tag" }, plural(series.frames, "frame"))), host, says);
}

const legend = (labels) => html("ul", { class: "legend" }, labels.map((label) =>
  html("li", { class: toneOf(labels, label) }, html("i", {}), label)));

function timelinesView(found, onChoose) {
  const [series, labels] = [listOf(found?.series), listOf(found?.labels)];
  if (!series.length) return null;
  return html("div", { class: "timelines" }, legend(labels), series.map((one) => seriesView(one, labels, onChoose)));
}

export { message, timelinesView, toneOf };
