// The attention of one sentence in a report: choose a layer and a head.
import * as cursor from "./cursor.js";
import { html, figure, choice } from "./draw.js";
import * as weights from "./weights.js";

const AVERAGE = "average";
// With more words, the map has the whole width, and the facing sentences are below it.
const MOST_BESIDE = 18;

// Whose words label the rows and the columns: in cross-attention, the target attends to the source.
function sidesOf(name) {
  if (!/\bself\b/.test(name)) return { rows: "target", columns: "source" };
  return name.startsWith("encoder") ? { rows: "source", columns: "source" } : { rows: "target", columns: "target" };
}
// Labels for `count` positions: the words, then dots, e.g. for the end token.
const wordsFor = (words, count) => Array.from({ length: count }, (_, index) => words?.[index] ?? "·");

function viewOf(data, map, head) {
  const matrix = head === AVERAGE ? weights.average(map.heads) : map.heads[head];
  const sides = sidesOf(map.name);
  const rows = wordsFor(data[sides.rows], matrix.length);
  const columns = wordsFor(data[sides.columns], matrix[0].length);
  const which = head === AVERAGE ? `average of ${map.heads.length} heads` : `head ${head}`;
  return { matrix, sides, rows, columns, label: weights.label(`${map.name}, ${which}`, matrix, rows, columns) };
}

// A row of thumbnails; `heads` are matrices, and their average comes first if there are several.
function headChoice(heads, chosen, onChoose) {
  const named = (name, matrix) => [weights.thumbnail(matrix), html("span", {}, name)];
  const options = heads.map((matrix, head) => [head, named(`head ${head}`, matrix)]);
  if (heads.length > 1) options.unshift([AVERAGE, named("average of all heads", weights.average(heads))]);
  return choice("Head", options, chosen ?? options[0][0], onChoose);
}

function attentionView(data) {
  const maps = (data?.maps ?? []).filter((map) => map.heads?.[0]?.[0]?.length);
  if (!maps.length) return null;
  const { says, views, show } = cursor.panels();
  const scale = html("span", { class: "scale" });
  const heads = html("div", { class: "heads" });

  function chooseHead(map, head) {
    const view = viewOf(data, map, head);
    scale.replaceChildren("0", html("i", {}), figure(weights.strongest(view.matrix)));
    views.classList.toggle("wide", view.columns.length > MOST_BESIDE);
    show([{ make: weights.map, view }, { make: weights.facing, view }]);
  }
  function chooseLayer(map) {
    heads.replaceChildren(headChoice(map.heads, null, (head) => chooseHead(map, head)));
    chooseHead(map, map.heads.length > 1 ? AVERAGE : 0);
  }

  // Begin with the last layer, which is nearest to the output.
  chooseLayer(maps.at(-1));
  const select = html("select", {}, maps.map((map, index) =>
    html("option", { value: index, selected: index === maps.length - 1 }, map.name)));
  select.addEventListener("change", () => chooseLayer(maps[Number(select.value)]));
  const layer = html(maps.length > 1 ? "label" : "span", { class: "field" }, "Layer ",
    maps.length > 1 ? select : html("code", {}, maps[0].name));
  return html("figure", { class: "attention" }, html("div", { class: "bar" }, layer, heads, scale), says, views);
}

export { AVERAGE, MOST_BESIDE, headChoice, attentionView };
