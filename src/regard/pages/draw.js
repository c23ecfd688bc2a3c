"use strict";
// Small parts that every page draws with: elements, scales, words for numbers, controls. Nothing here keeps state,
// and text always enters as text (never as markup), so no sentence of a corpus can become part of the page's code.
const draw = (() => {
  // Asked of the parser, so that the file holds no address at all.
  const SVG = Object.assign(document.createElement("template"), { innerHTML: "<svg/>" }).content.firstChild.namespaceURI;

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }
  const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  // ---- numbers
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const minus = (text) => text.replace("-", "\u2212");
  const number = (value, digits = 0) =>
    minus(value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  // As many digits as a reader can use: 1,234  45.2  0.413  1.2e-5
  function figure(value) {
    const size = Math.abs(value);
    if (size > 0 && size < 0.0005) return minus(value.toExponential(1));
    if (Number.isInteger(value)) return number(value);
    return number(value, size >= 1000 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
  }
  // A round number as an axis shows it: 0.5, not 0.500.
  const round = (value) => minus(value.toLocaleString("en", { maximumFractionDigits: 6 }));
  function large(value) {
    for (const [size, word] of [[1e9, "billion"], [1e6, "million"]]) {
      if (value >= size) return `${minus((value / size).toPrecision(value / size >= 100 ? 3 : 2))} ${word}`;
    }
    return number(value);
  }
  const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
  function duration(seconds) {
    if (seconds < 90) return plural(Math.round(seconds), "second");
    const minutes = Math.round(seconds / 60);
    if (minutes < 90) return plural(minutes, "minute");
    return `${number(Math.floor(minutes / 60))} h ${minutes % 60} min`;
  }

  // ---- scales
  const linear = ([from, to], [start, end]) => (value) =>
    start + (to === from ? 0.5 : (value - from) / (to - from)) * (end - start);
  // Round numbers from `low` up to the first one that covers `high`.
  function ticks(low, high, count = 5) {
    const rough = (high - low || 1) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
    const first = Math.floor(low / step + 1e-9);
    const last = Math.ceil(high / step - 1e-9);
    return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
  }
  const line = (points) => points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
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
  // Draws again whenever the width of `host` changes, so that type keeps its size at any width.
  function responsive(host, render) {
    let width = 0;
    new ResizeObserver(() => {
      const now = Math.floor(host.clientWidth);
      if (now && now !== width) render((width = now));
    }).observe(host);
    return host;
  }
  // One of a few: a row of radio buttons. `options` are [value, label] pairs; a label may be a node.
  function choice(name, legend, options, chosen, onChoose) {
    const radios = options.map(([value, label]) => {
      const input = html("input", { type: "radio", name, value, checked: value === chosen });
      input.addEventListener("change", () => onChoose(value));
      return html("label", {}, input, html("span", {}, label));
    });
    return html("fieldset", { class: "choice" }, html("legend", { class: "unseen" }, legend), radios);
  }
  const table = (headings, rows, kind = "") =>
    html("table", { class: kind },
      headings && html("thead", {}, html("tr", {}, headings.map((text) => html("th", { scope: "col" }, text)))),
      html("tbody", {}, rows.map(([head, ...cells]) =>
        html("tr", {}, html("th", { scope: "row" }, head), cells.map((cell) => html("td", {}, cell))))));

  return { html, svg, isNumber, number, figure, round, large, plural, duration, linear, ticks, line, spread,
    textWidth, shorten, languageName, responsive, choice, table };
})();
