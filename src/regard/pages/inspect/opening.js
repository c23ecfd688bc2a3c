// The first section: source and translation on facing pages, and the view of attention weights.
import * as cursor from "../common/cursor.js";
import { html, figure, isNumber, large } from "../common/draw.js";
import * as look from "./look.js";
import * as running from "../common/running.js";

// With more words than this in both sentences together, the text is smaller.
const LONG = 44;
const SIDES = ["source", "target"];
const BLIND = "This model has no attention, so there are no attention weights to show.";

function facts({ translation, model }, names) {
  const { score, log_prob: total, flags, given } = translation ?? {};
  const { arch, parameters } = model ?? {};
  return [
    `${names.source} to ${names.target}`,
    arch && `${arch}${parameters ? `, ${large(parameters)} parameters` : ""}`,
    isNumber(total) && `log-probability ${figure(total)}`,
    isNumber(score) && `score ${figure(score)}`,
    given && "a translation that was given",
    ...(flags ?? []).map((flag) => `flag: ${flag}`),
  ].filter(Boolean).join(" · ");
}

// The two sentences on facing pages. `onPoint(side, index or null)` is called with the word under the pointer.
function facingPages(book, unit, { languages, names, onPoint }) {
  const texts = Object.fromEntries(SIDES.map((side) => [side, running.text(side, book.pieces(side, unit),
    languages[side], { label: `${names[side]}; use the arrow keys to move between words`,
      onPoint: onPoint && ((index) => onPoint(side, index)) })]));
  const leaves = SIDES.map((side) => html("div", { class: `leaf ${side}` },
    html("span", { class: "tag" }, names[side]), texts[side].node));
  // Shades the words that the row attends to, or the words that attend to the column. In decoder self-attention,
  // columns are shifted by one, because the first is the start token.
  function follow({ matrix, sides, isShifted, most }, { row, column }) {
    const shift = isShifted ? 1 : 0;
    SIDES.forEach((side) => texts[side].shade(null));
    if (row !== null) texts[sides.columns].shade(matrix[row].slice(shift).map((weight) => weight / most));
    else if (column !== null) texts[sides.rows].shade(matrix.map((line) => line[column] / most));
    const [side, place] = row !== null ? [sides.rows, row] : [sides.columns, column !== null ? column - shift : null];
    SIDES.forEach((one) => texts[one].toggle("now", (index) => one === side && index === place));
  }
  return { leaves, follow };
}

function openingView(data, book, maps, picked, names, beside) {
  const pages = html("div", { class: "spread frontispiece sentences" });
  pages.classList.toggle("long", data.source.words.length + data.target.words.length > LONG);
  let [shown, looking] = [null, null];

  function onPoint(side, index) {
    const { rows, columns } = looking.sides();
    if (index === null) looking.point(cursor.NOWHERE);
    else if (side === rows) looking.point({ row: index, column: null });
    else if (side === columns) looking.point({ row: null, column: index });
  }
  function lay({ unit }) {
    const settings = { languages: data.languages ?? {}, names, onPoint: maps.length > 0 && onPoint };
    shown = facingPages(book, unit, settings);
    pages.replaceChildren(...shown.leaves);
  }
  lay(picked.values);
  if (maps.length) {
    looking = look.lookView(book, maps, picked, (view, at) => shown.follow(view, at), beside);
    picked.listen((values, changes) => { if ("unit" in changes) lay(values); });
  }
  return html("div", { class: "opening" }, html("h1", { class: "unseen" }, data.title || "A look inside"),
    html("p", { class: "facts" }, facts(data, names)), pages, looking?.node ?? html("p", { class: "told" }, BLIND));
}

export { openingView };
