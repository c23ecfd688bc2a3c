// Learning curves of all systems in one chart: a validation score against minutes or FLOPs.
import { html, isNumber, ticks, choice } from "../common/draw.js";
import { chart, logTicks } from "./lines.js";

const SHORT = { 12: "T", 15: "P", 18: "E" };
// A number of FLOPs as an axis shows it: 20T, 1P.
function short(value) {
  const exponent = [18, 15, 12].find((one) => value >= 10 ** one) ?? 12;
  return `${Number((value / 10 ** exponent).toPrecision(3))}${SHORT[exponent]}`;
}
const identity = (value) => value;
const AXES = {
  minutes: { label: "minutes", title: "minutes of training", of: ({ seconds }) => seconds / 60 },
  flops: { label: "FLOPs", title: "FLOPs (logarithmic; T: 10¹², P: 10¹⁵)", of: ({ flops }) => flops, isLog: true },
};

function curves(systems, metrics) {
  const shown = metrics.filter(([key]) => systems.some((one) => (one.curve ?? []).some((point) => isNumber(point[key]))));
  if (!shown.length) return null;
  const host = html("div", {});
  const state = { axis: "minutes", metric: shown[0][0] };

  function render() {
    const { of, isLog, title } = AXES[state.axis];
    const series = systems.map(({ name, curve }) => ({ name, points: (curve ?? [])
      .filter((point) => isNumber(point[state.metric]) && of(point) > 0)
      .map((point) => [of(point), point[state.metric]]) })).filter(({ points }) => points.length)
      .map((one, place) => ({ ...one, isBest: place === 0 })); // systems are sorted; ensembles have no curve
    const xs = series.flatMap(({ points }) => points.map(([x]) => x));
    const ys = series.flatMap(({ points }) => points.map(([, y]) => y));
    const [low, high] = [Math.min(...xs), Math.max(...xs)];
    const label = metrics.find(([key]) => key === state.metric)[1].label;
    host.replaceChildren(chart(series, {
      x: { title, marks: isLog ? logTicks(low, high) : ticks(0, high, 6), of: isLog ? Math.log10 : identity,
        show: isLog ? short : undefined },
      y: { marks: ticks(0, Math.max(...ys) || 1, 6), of: identity },
    }, `${label} on validation data against ${title}, one line for each system`));
  }
  const pick = (part) => (value) => { state[part] = value; render(); };
  render();
  return html("figure", { class: "curves" }, html("div", { class: "bar" },
    choice("Score", shown.map(([key, { label }]) => [key, label]), state.metric, pick("metric")),
    choice("Horizontal axis", Object.entries(AXES).map(([key, { label }]) => [key, label]), "minutes", pick("axis"))),
  host);
}

export { curves };
