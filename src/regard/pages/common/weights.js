// Attention weights, drawn in two ways: as a map with words on both sides, and as links between two facing sentences.
// Each drawing is { node, mark(cursor), locate(event) }; a cursor is { row, column }, either may be null.
// Negative weights (of effective attention and attributions) have another colour.
import { svg, isNumber, textWidth, shorten, unique } from "./draw.js";

const LEVELS = 24;
const CELL = { least: 15, most: 38, slanted: 24 };
const LABEL = { size: 13, most: 134 };
const FAINTEST_LINK = 0.1;
const THUMBNAIL_CELLS = 26;

const strongest = (matrix) => Math.max(1e-9, ...matrix.map((row) => Math.max(...row.filter(isNumber).map(Math.abs))));
const average = (matrices) => matrices[0].map((line, row) => line.map((_, column) =>
  matrices.reduce((sum, matrix) => sum + (matrix[row]?.[column] ?? 0), 0) / matrices.length));
const top = (list) => list.reduce((best, weight, index) => (weight > list[best] ? index : best), 0);
// The content of a map as text, for screen readers.
function label(name, matrix, rows, columns) {
  const pairs = matrix.map((line, row) => `${rows[row]} to ${columns[top(line)]}`).slice(0, 12);
  return `Attention of ${name}. Strongest: ${pairs.join(", ")}.`;
}
const widest = (words, size) => Math.max(...words.map((word) => textWidth(word, size, "--serif")));

const sheet = (kind, width, height, label, ...content) => svg("svg",
  { class: kind, width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, content);

// Cells of similar weight are one path, so that a long sentence needs dozens of nodes, not thousands.
function cells(matrix, size, gap, most = strongest(matrix)) {
  const paths = new Map();
  matrix.forEach((row, y) => row.forEach((weight, x) => {
    const level = Math.round((LEVELS * (weight ?? 0)) / most);
    if (!paths.has(level)) paths.set(level, []);
    paths.get(level).push(`M${x * size} ${y * size}h${size - gap}v${size - gap}h${gap - size}z`);
  }));
  paths.delete(0);
  return svg("g", { class: "cells" }, Array.from(paths, ([level, path]) => svg("path",
    { class: level < 0 && "less", d: path.join(""), "fill-opacity": Math.abs(level / LEVELS).toFixed(3) })));
}

// In the thumbnail of a long sentence, each cell is the maximum of several weights.
function shrink(matrix) {
  const [down, across] = [matrix.length, matrix[0].length].map((size) => Math.ceil(size / THUMBNAIL_CELLS));
  if (down === 1 && across === 1) return matrix;
  const parts = (list, size) => Array.from({ length: Math.ceil(list.length / size) }, (_, part) =>
    list.slice(part * size, (part + 1) * size));
  return parts(matrix, down).map((lines) => parts(matrix[0], across).map((part, column) =>
    Math.max(...lines.flatMap((line) => line.slice(column * across, column * across + part.length)))));
}
function thumbnail(whole) {
  const matrix = shrink(whole);
  const box = `0 0 ${matrix[0].length * 4} ${matrix.length * 4}`;
  return svg("svg", { class: "thumbnail", viewBox: box, preserveAspectRatio: "none", "aria-hidden": "true" },
    cells(matrix, 4, 0));
}

// Column labels are slanted if the columns are wide enough, else vertical; they never overlap.
function layOut({ rows, columns, cell = CELL.most, least = CELL.least }, width) {
  const left = 10 + Math.min(LABEL.most, 1.08 * widest(rows, LABEL.size)); // chosen words are bold, so wider
  const reach = Math.min(LABEL.most, widest(columns, LABEL.size));
  const overhang = Math.ceil(reach * Math.SQRT1_2);
  const fit = (room) => Math.floor(Math.min(cell, Math.max(least, room / columns.length)));
  const isSlanted = fit(width - left - overhang) >= CELL.slanted;
  const size = isSlanted ? fit(width - left - overhang) : fit(width - left - 2);
  const top = 14 + (isSlanted ? overhang + 4 : Math.ceil(reach));
  return {
    left, top, size, reach, isSlanted, font: Math.min(LABEL.size, size - 2),
    width: left + size * columns.length + (isSlanted ? overhang : 2), height: top + size * rows.length + 2,
  };
}

function mapLabels(view, { left, top, size, reach, font, isSlanted }) {
  const rows = view.rows.map((word, row) => svg("text", {
    class: `word ${view.sides.rows}`, "font-size": font, "text-anchor": "end",
    x: left - 8, y: top + (row + 0.5) * size + font * 0.34,
  }, shorten(word, left - 8, font, "--serif")));
  const { columns: side } = view.sides;
  const columns = view.columns.map((word, column) => {
    const x = left + (column + 0.5) * size + (isSlanted ? -3 : font * 0.34);
    return svg("text", {
      class: `word ${typeof side === "function" ? side(column) : side}`, "font-size": font,
      transform: `translate(${x} ${top - 6}) rotate(${isSlanted ? -45 : -90})`,
    }, shorten(word, reach, font, "--serif"));
  });
  return { rows, columns };
}

// Numbers in the cells, if the view has a function `write`.
const written = ({ matrix, write }, size) => write && matrix.flatMap((row, y) => row.map((weight, x) => {
  const text = write(weight);
  return text && svg("text", { class: weight > 0.5 ? "cell-figure over" : "cell-figure", x: (x + 0.5) * size,
    y: (y + 0.5) * size + 3.5, "text-anchor": "middle" }, text);
}));

// Optional parts of a view: `least` and `cell` limit the size of cells, `write(weight)` returns the text in a cell.
function map(view, width) {
  const plan = layOut(view, width);
  const { left, top, size } = plan;
  const [wide, high] = [size * view.columns.length, size * view.rows.length];
  const labels = mapLabels(view, plan);
  const cursorNode = svg("g", {});
  const node = sheet("map", plan.width, plan.height, view.label,
    svg("rect", { class: "ground", x: left, y: top, width: wide - 1, height: high - 1 }),
    svg("g", { transform: `translate(${left} ${top})` }, cells(view.matrix, size, 1, view.most), written(view, size),
      cursorNode),
    labels.rows, labels.columns);

  function mark({ row, column }) {
    labels.rows.forEach((label, index) => label.classList.toggle("chosen", index === row));
    labels.columns.forEach((label, index) => label.classList.toggle("chosen", index === column));
    const box = (kind, x, y, width, height) => svg("rect", { class: kind, x: x - 0.5, y: y - 0.5, width, height });
    cursorNode.replaceChildren(...[
      row !== null && box("line-box", 0, row * size, wide, size),
      column !== null && box("line-box", column * size, 0, size, high),
      row !== null && column !== null && box("cell-box", column * size, row * size, size, size),
    ].filter(Boolean));
  }
  // The cell under the pointer; on a label, the row or column; elsewhere nothing.
  function locate(event) {
    const frame = node.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left - left, event.clientY - frame.top - top];
    const row = y >= 0 && y < high ? Math.floor(y / size) : null;
    const column = x >= 0 && x < wide ? Math.floor(x / size) : null;
    const isBeside = x >= wide || y >= high;
    return isBeside ? { row: null, column: null } : { row, column };
  }
  return { node, mark, locate };
}

function links({ matrix, rows, columns, most = strongest(matrix) }, from, to, place) {
  const bend = (to - from) * 0.45;
  return matrix.flatMap((line, row) => line.map((weight, column) => ({ share: (weight ?? 0) / most, row, column })))
    .filter(({ share }) => Math.abs(share) > FAINTEST_LINK)
    .map((link) => {
      const [start, end] = [place(link.column, columns), place(link.row, rows)];
      const size = Math.abs(link.share);
      return { ...link, node: svg("path", {
        class: link.share < 0 ? "link less" : "link",
        "stroke-opacity": size.toFixed(3), "stroke-width": (0.8 + 2.4 * size).toFixed(2),
        d: `M${from + 6} ${start}C${from + bend} ${start} ${to - bend} ${end} ${to - 6} ${end}`,
      }) };
    });
}

function facing(view, width) {
  const count = Math.max(view.rows.length, view.columns.length);
  const pitch = count > 24 ? 21 : count > 14 ? 25 : 30;
  const font = Math.min(17, pitch - 5);
  const height = count * pitch;
  const room = Math.min(width * 0.36, 8 + widest([...view.rows, ...view.columns], font));
  const [from, to] = [room, width - room];
  // The shorter sentence is stretched to the height of the longer one.
  const place = (index, words) => ((index + 0.5) * height) / words.length;
  const label = (side, words, x, anchor) => words.map((word, index) => svg("text", {
    class: `word ${side}`, x, y: place(index, words) + font * 0.34, "text-anchor": anchor, "font-size": font,
  }, shorten(word, room - 2, font, "--serif")));
  const columns = label(view.sides.columns, view.columns, from, "end");
  const rows = label(view.sides.rows, view.rows, to, "start");
  const drawn = links(view, from, to, place);
  const gradient = unique("across");
  const node = sheet("facing", width, height, view.label,
    svg("linearGradient", { id: gradient, gradientUnits: "userSpaceOnUse", x1: from, x2: to, y1: 0, y2: 0 },
      svg("stop", { offset: 0.1, class: `stop-${view.sides.columns}` }),
      svg("stop", { offset: 0.9, class: `stop-${view.sides.rows}` })),
    svg("g", { stroke: `url(#${gradient})` }, drawn.map((link) => link.node)), columns, rows);

  // Dims all links but those of the chosen row (or else column), and the words that these do not reach.
  function mark({ row, column }) {
    const isAny = row !== null || column !== null;
    const isOn = (link) => !isAny || (row !== null ? link.row === row : link.column === column);
    drawn.forEach((link) => link.node.classList.toggle("dim", !isOn(link)));
    const lit = drawn.filter(isOn);
    const dim = (texts, chosen, key) => texts.forEach((text, index) =>
      text.classList.toggle("dim", isAny && index !== chosen && !lit.some((link) => link[key] === index)));
    dim(rows, row, "row");
    dim(columns, row === null ? column : null, "column");
  }
  function locate(event) {
    const frame = node.getBoundingClientRect();
    const share = Math.min(0.9999, Math.max(0, (event.clientY - frame.top) / height));
    const isLeft = event.clientX - frame.left < width / 2;
    const index = Math.floor(share * (isLeft ? view.columns : view.rows).length);
    return isLeft ? { row: null, column: index } : { row: index, column: null };
  }
  return { node, mark, locate };
}

export { strongest, average, top, label, thumbnail, cells, map, facing };
