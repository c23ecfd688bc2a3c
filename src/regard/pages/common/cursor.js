// One cursor for several drawings of the same words. Pointing at a word or a cell in one drawing, or the arrow keys,
// mark its row and column in all drawings, and show the weight in a sentence.
import { html, figure, responsive } from "./draw.js";
import * as weights from "./weights.js";

const { top } = weights;
const NOWHERE = { row: null, column: null };
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// The weights at the cursor, as a sentence.
function describe({ matrix, rows, columns }, { row, column }) {
  if (row !== null && column !== null) {
    return `“${rows[row]}” attends to “${columns[column]}” with weight ${figure(matrix[row][column] ?? 0)}.`;
  }
  if (row !== null) {
    const most = top(matrix[row]);
    return `“${rows[row]}” attends most to “${columns[most]}”, with weight ${figure(matrix[row][most] ?? 0)}.`;
  }
  if (column !== null) {
    const most = top(matrix.map((line) => line[column]));
    const weight = figure(matrix[most][column] ?? 0);
    return `“${columns[column]}” receives its largest weight from “${rows[most]}”: ${weight}.`;
  }
  return "Point at a word or a cell, or use the arrow keys, to see its weight.";
}

// Elements for drawings of `name`, and a line of text about the cursor; `follow` is called on every move. A drawing is
// { make, view, title }: a function of weights.js, the data that it draws, and a heading if there are several.
function panels({ name = "Attention weights", say = describe, follow = () => {} } = {}) {
  const says = html("p", { class: "says", role: "status" });
  const views = html("div", { class: "attention-views" });
  let [parts, here] = [[], NOWHERE];
  const view = () => parts[0].view;

  function point(to) {
    here = to;
    parts.forEach((part) => part.drawing?.mark(here));
    says.textContent = say(view(), here);
    follow(here);
  }
  function put(part) {
    if (!part.host.clientWidth) return;
    part.drawing = part.make(part.view, part.host.clientWidth);
    part.host.replaceChildren(part.drawing.node);
    part.drawing.mark(here);
  }
  function move(event) {
    const by = MOVES[event.key];
    if (!by) return;
    event.preventDefault();
    const go = (at, step, count) => (at === null ? 0 : Math.min(count - 1, Math.max(0, at + step)));
    point({ row: go(here.row, by[0], view().rows.length), column: go(here.column, by[1], view().columns.length) });
    event.currentTarget.querySelector(".cell-box").scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  function prepare({ make, view, title }) {
    const isMap = make === weights.map;
    const host = isMap
      ? html("div", { class: "map-host", tabindex: 0, role: "group",
        "aria-label": `${title ?? name}; arrow keys move the cursor` })
      : html("div", { class: "facing-host" });
    const part = { make, view, title, host };
    responsive(host, () => put(part));
    host.addEventListener("pointermove", (event) => part.drawing && point(part.drawing.locate(event)));
    host.addEventListener("pointerleave", () => point(NOWHERE));
    if (isMap) host.addEventListener("keydown", move);
    part.node = title ? html("div", { class: "panel" }, html("p", { class: "panel-name" }, title), host) : host;
    return part;
  }
  // If only the weights change, the elements stay, and so does the keyboard focus.
  function show(drawings) {
    const isSame = drawings.length === parts.length
      && drawings.every(({ make, title }, index) => make === parts[index].make && title === parts[index].title);
    if (isSame) parts.forEach((part, index) => { part.view = drawings[index].view; });
    else {
      parts = drawings.map(prepare);
      views.replaceChildren(...parts.map((part) => part.node));
    }
    point(NOWHERE);
    parts.forEach(put);
  }
  return { says, views, show, point };
}

export { NOWHERE, describe, panels };
