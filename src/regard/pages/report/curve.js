// The learning curve: loss above, score below, one x axis and one crosshair for both, and the values at the crosshair.
import {
  html, svg, isNumber, number, figure, round, plural, linear, ticks, line, spread, responsive, choice,
} from "../common/draw.js";

const MOST_POINTS = 300;
const MOST_DOTS = 60;
const MARGIN = { left: 34, right: 112, top: 34, bottom: 40 };
const PANELS = [
  { name: "loss", title: "Loss", height: 200 },
  { name: "score", title: "Score on validation data", height: 170 },
  { name: "reward", title: "Reward", height: 120 },
];
const GAP = 46;
const SERIES = [
  { panel: "loss", from: "steps", key: "loss", name: "training", kind: "training" },
  { panel: "loss", from: "validations", key: "loss", name: "validation", kind: "validation" },
  { panel: "score", from: "validations", key: "bleu", name: "BLEU", kind: "bleu" },
  { panel: "score", from: "validations", key: "chrf", name: "chrF", kind: "chrf" },
  { panel: "score", from: "validations", key: "span_f1", name: "span F1", kind: "span-f1" },
  { panel: "score", from: "validations", key: "accuracy", name: "accuracy", kind: "accuracy" },
  { panel: "score", from: "validations", key: "mrr", name: "MRR", kind: "accuracy" },
  { panel: "score", from: "validations", key: "f1", name: "macro F1", kind: "f1" },
  { panel: "reward", from: "steps", key: "reward", name: "training", kind: "training" },
  { panel: "reward", from: "validations", key: "reward", name: "validation", kind: "validation" },
];

const readable = (records) => (records ?? []).filter((record) => isNumber(record.step));
const best = (validations) => readable(validations).filter((validation) => validation.best).at(-1);
// The last of `records` (in order of step) up to `step` that has a value for `key`.
const latest = (records, key, step) =>
  records.filter((record) => isNumber(record[key]) && record.step <= step).at(-1);

// Reduces many steps to at most MOST_POINTS: the mean, lowest and highest loss of groups of successive steps.
function thin(steps) {
  const size = Math.max(1, Math.ceil(steps.length / MOST_POINTS));
  return Array.from({ length: Math.ceil(steps.length / size) }, (_, index) => {
    const stretch = steps.slice(index * size, (index + 1) * size);
    const losses = stretch.map((step) => step.loss).filter(isNumber);
    const middle = stretch[stretch.length >> 1];
    if (!losses.length) return { ...middle, loss: null };
    const mean = losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
    return { ...middle, loss: mean, low: Math.min(...losses), high: Math.max(...losses) };
  });
}

// The content of the figure, as sentences.
function message(data) {
  const losses = readable(data.steps).filter((step) => isNumber(step.loss));
  const top = best(data.validations);
  const parts = [];
  if (losses.length > 1) {
    const [first, last] = [losses[0], losses.at(-1)];
    const went = `${last.loss <= first.loss ? "fell" : "rose"} from ${figure(first.loss)} to ${figure(last.loss)}`;
    parts.push(`Training loss ${went} in ${plural(last.step, "step")}.`);
  }
  const measures = [["bleu", "BLEU"], ["chrf", "chrF"], ["span_f1", "span F1"], ["accuracy", "accuracy"], ["mrr", "MRR"],
    ["loss", "loss"]];
  const [key, name] = measures.find(([one]) => isNumber(top?.[one])) ?? [];
  if (key) parts.push(`The best validation result, ${name} ${figure(top[key])}, was at step ${number(top.step)}.`);
  return parts.join(" ");
}

// The choices for the x axis: steps and, if every record has its seconds, time.
function axesOf(records) {
  const axes = { steps: { title: "steps", of: (record) => record.step } };
  if (records.every((record) => isNumber(record.seconds))) {
    const isLong = records.at(-1).seconds > 3 * 3600;
    axes.minutes = { title: isLong ? "hours" : "minutes", of: (record) => record.seconds / (isLong ? 3600 : 60) };
  }
  return axes;
}

// ---- drawing
function panelsOf(series, right) {
  let top = MARGIN.top;
  return PANELS.map((panel) => ({ ...panel, own: series.filter((one) => one.panel === panel.name) }))
    .filter(({ own }) => own.length)
    .map((panel) => {
      const values = panel.own.flatMap(({ records, key }) => records.map((record) => record.high ?? record[key]));
      const marks = ticks(0, Math.max(...values) || 1, 4);
      const bottom = top + panel.height;
      const placed = { ...panel, marks, top, bottom, right, y: linear([0, marks.at(-1)], [bottom, top]) };
      top = bottom + GAP;
      return placed;
    });
}

function panelNode({ title, own, marks, y, top, bottom, right }, x) {
  const labels = spread(own.map(({ records, key, name, kind }) => {
    const last = records.at(-1)[key];
    return { kind, y: y(last), text: `${name} ${figure(last)}` };
  }), 17, bottom);
  return svg("g", {},
    svg("text", { class: "panel-title", x: 0, y: top - 18 }, title),
    marks.map((mark) => [
      svg("line", { class: mark ? "grid" : "base", x1: MARGIN.left, x2: right, y1: y(mark), y2: y(mark) }),
      svg("text", { class: "tick", x: MARGIN.left - 8, y: y(mark) + 4, "text-anchor": "end" }, round(mark))]),
    own.map((one) => seriesNode(one, x, y)),
    labels.map(({ kind, y, text }) => svg("text", { class: `series-label ${kind}`, x: right + 10, y: y + 4 }, text)));
}

function seriesNode({ records, key, kind, from }, x, y) {
  const edge = (name) => records.map((record) => [x(record), y(record[name])]);
  const points = edge(key);
  const isThinned = records.some((record) => record.high > record.low);
  const hasDots = from === "validations" && points.length <= MOST_DOTS;
  return svg("g", { class: `series ${kind}` },
    isThinned && svg("path", { class: "band", d: `${line([...edge("high"), ...edge("low").reverse()])}Z` }),
    svg("path", { class: "line", d: line(points) }),
    hasDots && points.map(([cx, cy]) => svg("circle", { class: "dot", cx, cy, r: 2.4 })));
}

const axisNode = (title, scale, marks, { right, bottom }) => svg("g", {},
  marks.filter((mark) => scale(mark) <= right + 1).map((mark) =>
    svg("text", { class: "tick", x: scale(mark), y: bottom + 20, "text-anchor": "middle" }, round(mark))),
  svg("text", { class: "tick", x: right + 30, y: bottom + 20 }, title));

function bestNode(top, x, panels) {
  const at = x(top);
  const isRight = at > (panels[0].right + MARGIN.left) / 2;
  return svg("g", {},
    svg("line", { class: "best-line", x1: at, x2: at, y1: MARGIN.top - 14, y2: panels.at(-1).bottom }),
    svg("text", {
      class: "best-label", x: at + (isRight ? -6 : 6), y: MARGIN.top - 6, "text-anchor": isRight ? "end" : "start",
    }, `best: step ${number(top.step)}`),
    panels.flatMap(({ own, y }) => own
      .filter(({ from, key }) => from === "validations" && isNumber(top[key]))
      .map(({ key, kind }) => svg("circle", { class: `ring ${kind}`, cx: at, cy: y(top[key]), r: 5 }))));
}

// A vertical line at one step, and a dot at the latest value of each series.
const crosshairNodes = (stop, x, panels) => [
  svg("line", { class: "crosshair", x1: x(stop), x2: x(stop), y1: MARGIN.top, y2: panels.at(-1).bottom }),
  ...panels.flatMap(({ own, y }) => own.map(({ records, key, kind }) => {
    const record = latest(records, key, stop.step);
    return record && svg("circle", { class: `dot-here ${kind}`, cx: x(record), cy: y(record[key]), r: 4 });
  })).filter(Boolean)];

function readoutNodes(stop, steps, series) {
  const value = (records, key, show) => {
    const found = latest(records, key, stop.step)?.[key];
    return isNumber(found) ? show(found) : null;
  };
  return [
    ["step", number(stop.step)],
    ["minutes", isNumber(stop.seconds) ? number(stop.seconds / 60, 1) : null],
    ...series.map(({ records, key, name, panel, kind }) =>
      [panel === "score" ? name : `${name} ${panel}`, value(records, key, figure), kind]),
    ["learning rate", value(steps, "rate", figure)],
    ["tokens per second", value(steps, "tokens_per_second", number)],
  ].filter(([, text]) => text !== null).map(([label, text, kind]) =>
    html("div", {}, html("dt", {}, label), html("dd", { class: kind }, text)));
}

function learningCurve(raw) {
  const data = { steps: thin(readable(raw.steps)), validations: readable(raw.validations) };
  const stops = [...data.steps, ...data.validations].sort((one, other) => one.step - other.step);
  const series = SERIES
    .map((one) => ({ ...one, records: data[one.from].filter((record) => isNumber(record[one.key])) }))
    .filter(({ records }) => records.length);
  if (!series.length) return null;
  const axes = axesOf(stops);
  const top = best(data.validations);
  const host = html("div", { class: "plot", tabindex: 0, role: "group",
    "aria-label": "Learning curve; use the arrow keys to move through the steps" });
  const readout = html("dl", { class: "readout" });
  let axis = axes.steps;
  let here = top ? stops.indexOf(top) : stops.length - 1;
  let view = null;

  function show(index) {
    here = Math.min(Math.max(index, 0), stops.length - 1);
    readout.replaceChildren(...readoutNodes(stops[here], data.steps, series));
    view.crosshair.replaceChildren(...crosshairNodes(stops[here], view.x, view.panels));
  }
  function render(width) {
    const right = width - MARGIN.right;
    const last = axis.of(stops.at(-1));
    const scale = linear([0, last], [MARGIN.left, right]);
    const x = (record) => scale(axis.of(record));
    const panels = panelsOf(series, right);
    const crosshair = svg("g", {});
    view = { x, panels, crosshair };
    const box = `0 0 ${width} ${panels.at(-1).bottom + MARGIN.bottom}`;
    host.replaceChildren(svg("svg", { role: "img", "aria-label": message(raw) || "Learning curve", viewBox: box },
      panels.map((panel) => panelNode(panel, x)),
      axisNode(axis.title, scale, ticks(0, last, width < 500 ? 3 : 6), panels.at(-1)),
      top && bestNode(top, x, panels), crosshair));
    show(here);
  }

  host.addEventListener("pointermove", (event) => {
    const at = event.clientX - host.getBoundingClientRect().left;
    const distance = (stop) => Math.abs(view.x(stop) - at);
    show(stops.reduce((near, stop, index) => (distance(stop) < distance(stops[near]) ? index : near), 0));
  });
  host.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: stops.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
  const toggle = axes.minutes && choice("Horizontal axis",
    [["steps", "steps"], ["minutes", axes.minutes.title]], "steps",
    (name) => { axis = axes[name]; render(host.clientWidth); });
  return html("figure", { class: "curve" }, html("div", { class: "bar" }, toggle), responsive(host, render),
    html("div", { role: "status", "aria-label": "Values at the crosshair" }, readout));
}

export { learningCurve, message };
