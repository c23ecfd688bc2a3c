// The page of `regard info --roofline`: steps of a model under the two roofs of the machine, and tables of their costs.
import { html, svg, figure, large, linear, number, responsive, spread, table } from "../common/draw.js";
import { section, sign } from "../common/frame.js";

const data = JSON.parse(document.getElementById("data").textContent);
const MARGIN = { left: 62, right: 240, top: 34, bottom: 44 };
const HEIGHT = 400;
const LIMITS = { compute: "arithmetic", memory: "memory", launch: "operator calls" };

const powers = (low, high) => {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  return Array.from({ length: to - from + 1 }, (_, index) => 10 ** (from + index));
};
const giga = (value) => figure(value / 1e9);
const milliseconds = (seconds) => `${figure(seconds * 1e3)} ms`;
const speedOf = ({ flops, prediction }) => flops / prediction.seconds;

// Both axes are logarithmic: FLOPs per byte, and FLOPs per second.
function plot({ machine }, phases, width) {
  const marksX = powers(Math.min(...phases.map(({ intensity }) => intensity)) / 2, machine.ridge * 4);
  const marksY = powers(Math.min(...phases.map(speedOf)), machine.peak);
  const right = width - (width < 640 ? 20 : MARGIN.right);
  const bottom = HEIGHT - MARGIN.bottom;
  const log = (marks, range) => {
    const place = linear([Math.log10(marks[0]), Math.log10(marks.at(-1))], range);
    return (value) => place(Math.log10(value));
  };
  const [x, y] = [log(marksX, [MARGIN.left, right]), log(marksY, [bottom, MARGIN.top])];
  const start = Math.max(marksX[0], marksY[0] / machine.bandwidth);
  const roof = [[start, start * machine.bandwidth], [machine.ridge, machine.peak], [marksX.at(-1), machine.peak]];
  const labels = spread(phases.map((phase) => ({ phase, y: y(speedOf(phase)) })), 15, bottom);
  return svg("svg", { role: "img", viewBox: `0 0 ${width} ${HEIGHT}`,
    "aria-label": `Speed of ${phases.length} steps against arithmetic intensity, under the roofs of the machine` },
    marksY.map((mark) => [
      svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(mark), y2: y(mark) }),
      svg("text", { class: "tick", x: MARGIN.left - 8, y: y(mark) + 4, "text-anchor": "end" }, giga(mark))]),
    marksX.map((mark) =>
      svg("text", { class: "tick", x: x(mark), y: bottom + 18, "text-anchor": "middle" }, figure(mark))),
    svg("text", { class: "tick", x: right, y: bottom + 38, "text-anchor": "end" }, "FLOPs per byte"),
    svg("text", { class: "tick", x: 0, y: 12 }, "GFLOP/s"),
    svg("polyline", { class: "roof", points: roof.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ") }),
    labels.map(({ phase, y: at }) => svg("g", {},
      svg("circle", { class: phase.kind === "training" ? "training" : "use", r: 5, cx: x(phase.intensity),
        cy: y(speedOf(phase)) }, svg("title", {}, `${phase.name}: ${giga(speedOf(phase))} GFLOP/s`)),
      width >= 640 && svg("text", { class: "name", x: right + 10, y: at + 4 }, phase.name))));
}

function drawing(phases) {
  const host = html("div", {});
  return html("figure", { class: "roofline" }, responsive(host, (width) => host.replaceChildren(plot(data, phases, width))));
}

const costs = (phases) => html("div", { class: "wide" }, table(
  ["step", "FLOPs", "bytes moved", "FLOP/byte", "activations, bytes", "predicted", "limit"],
  phases.map((phase) => [phase.name, large(phase.flops), large(phase.bytes), figure(phase.intensity),
    phase.activations ? large(phase.activations) : "–", milliseconds(phase.prediction.seconds),
    LIMITS[phase.prediction.bound]])));

const operators = ({ name, operators: rows }) => html("details", {}, html("summary", {}, name), html("div", { class: "wide" },
  table(["operator", "calls", "FLOPs", "bytes moved"],
    rows.slice(0, 15).map((row) => [row.name, number(row.calls), large(row.flops), large(row.bytes)]))));

const machine = ({ threads, peak, bandwidth, bandwidths, launch }) => table(null, [
  ["threads", number(threads)],
  ["peak", `${giga(peak)} GFLOP/s`],
  ["bandwidth", `${giga(bandwidth)} GB/s`],
  ["bandwidth by working set", bandwidths.map(([size, speed]) => `${giga(speed)} GB/s at ${figure(size / 2 ** 20)} MB`).join(", ")],
  ["call of an operator", `${figure(launch * 1e6)} µs`],
]);

const phases = data.phases.filter(({ flops }) => flops > 0);
sign(data);
document.getElementById("view").append(...[
  html("header", { class: "title-page" }, html("h1", {}, data.arch), html("p", { class: "deck" },
    `Cost of training and use with texts of ${number(data.length)} tokens, on the machine that wrote this page.`)),
  section("roofline", "Roofline", `No step without a cache can be above the line: left of ${figure(data.machine.ridge)} FLOPs `
    + "per byte, memory is the limit (the memory wall), right of it arithmetic. A dot is the predicted speed of a step.",
  phases.length > 0 && drawing(phases)),
  section("costs", "Costs", "Bytes moved count each read and write of an operator. Activations are kept for the backward pass.",
    costs(data.phases)),
  section("operators", "Operators", "Those that move most bytes.", data.phases.map(operators)),
  section("machine", "Machine", "As measured.", machine(data.machine)),
].filter(Boolean));
