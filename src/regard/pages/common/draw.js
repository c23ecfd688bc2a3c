// Functions for all pages: elements, formats of numbers, scales, text, controls. Text is always inserted as text, never
// as markup, so that no sentence of a corpus can become code.
// The SVG namespace comes from the parser, so that the file contains no web address.
const parsed = Object.assign(document.createElement("template"), { innerHTML: "<svg/>" });
const SVG = parsed.content.firstChild.namespaceURI;

const isGiven = (value) => value !== null && value !== undefined && value !== false;
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (isGiven(value)) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter(isGiven));
  return node;
}
const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// ---- numbers
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const minus = (text) => text.replaceAll("-", "\u2212");
const number = (value, digits = 0) =>
  minus(value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
// A number without needless digits: 1,234  45.2  0.413  1.2e-5
function figure(value) {
  const size = Math.abs(value);
  if (size > 0 && size < 0.0005) return minus(value.toExponential(1));
  if (Number.isInteger(value) || size >= 1000) return number(value);
  return number(value, size >= 10 ? 1 : size >= 1 ? 2 : 3);
}
// A round number as an axis shows it: 0.5, not 0.500.
const round = (value) => minus(value.toLocaleString("en", { maximumFractionDigits: 6 }));
function large(value) {
  const [size, word] = [[1e9, " billion"], [1e6, " million"]].find(([least]) => value >= least) ?? [1, ""];
  return word ? `${Number((value / size).toPrecision(value / size >= 100 ? 3 : 2))}${word}` : number(value);
}
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
function duration(seconds) {
  if (seconds < 90) return plural(Math.round(seconds), "second");
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? plural(minutes, "minute") : `${number(Math.floor(minutes / 60))} h ${minutes % 60} min`;
}

// ---- scales
const linear = ([from, to], [start, end]) => (value) =>
  start + (to === from ? 0.5 : (value - from) / (to - from)) * (end - start);
// Round numbers that cover `low` to `high`, about `count` steps apart.
function ticks(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const [first, last] = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}
const line = (points) =>
  points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
// Moves labels apart until none is nearer than `gap` to the one above it, and none lies below `floor`.
function spread(labels, gap, floor) {
  const sorted = [...labels].sort((one, other) => one.y - other.y);
  sorted.forEach((label, index) => { if (index) label.y = Math.max(label.y, sorted[index - 1].y + gap); });
  sorted.reverse().forEach((label, index) => {
    label.y = Math.min(label.y, index ? sorted[index - 1].y - gap : floor);
  });
  return labels;
}

// ---- text
const pen = document.createElement("canvas").getContext("2d");
// `family` is the name of a font variable of the theme.
function textWidth(text, size, family) {
  pen.font = `${size}px ${getComputedStyle(document.documentElement).getPropertyValue(family)}`;
  return pen.measureText(text).width;
}
function shorten(text, room, size, family) {
  if (textWidth(text, size, family) <= room) return text;
  const letters = Array.from(text);
  while (letters.length > 1 && textWidth(`${letters.join("")}…`, size, family) > room) letters.pop();
  return `${letters.join("")}…`;
}
function languageName(code) {
  try { return code ? new Intl.DisplayNames("en", { type: "language" }).of(code) : ""; } catch { return code; }
}

// ---- parts of a page
// Calls `render` whenever the width of `host` changes, so that text keeps its size.
function responsive(host, render) {
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.floor(host.clientWidth);
    if (now && now !== width) render((width = now));
  }).observe(host);
  return host;
}
const unique = ((count) => (name) => `${name}-${++count}`)(0);
// A row of radio buttons. `options` are [value, label] pairs; a label may be nodes.
function choice(legend, options, chosen, onChoose) {
  const name = unique("choice");
  const radios = options.map(([value, label]) => {
    const input = html("input", { type: "radio", name, value, checked: value === chosen });
    input.addEventListener("change", () => onChoose(value));
    return html("label", {}, input, html("span", {}, label));
  });
  return html("fieldset", { class: "choice" }, html("legend", { class: "unseen" }, legend), radios);
}
const table = (headings, rows, kind) =>
  html("table", { class: kind },
    headings && html("thead", {}, html("tr", {}, headings.map((text) => html("th", { scope: "col" }, text)))),
    html("tbody", {}, rows.map(([head, ...cells]) =>
      html("tr", {}, html("th", { scope: "row" }, head), cells.map((cell) => html("td", {}, cell))))));

export { html, svg, isNumber, number, figure, round, large, plural, duration, linear, ticks, line, spread,
  textWidth, shorten, languageName, responsive, unique, choice, table };
