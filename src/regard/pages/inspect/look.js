// The view of attention weights: choose a kind of attention, a layer, a head, and raw or effective weights.
import { AVERAGE, MOST_BESIDE, headChoice } from "../common/attention.js";
import { ALL, KINDS, chosenMaps, viewsOf, warning } from "./compare.js";
import * as cursor from "../common/cursor.js";
import { html, figure, choice } from "../common/draw.js";
import * as weights from "../common/weights.js";

// Maximum number of words for a large map beside the sentences, and for two maps side by side.
const [MOST_BROAD, MOST_TWICE] = [46, 26];
const COMPARED = ["raw", "effective", "both", "difference"];

const kindsOf = (maps) => Object.keys(KINDS).filter((kind) => maps.some((map) => map.kind === kind));
// The first choice of layer and head in a kind: the last layer, which is nearest to the output.
function firstOf(maps, kind = kindsOf(maps)[0]) {
  const last = maps.filter((map) => map.kind === kind).at(-1);
  return { kind, layer: last.layer, head: last.weights.length > 1 ? AVERAGE : 0 };
}
// Shows a head in this view and scrolls to it; the head can be chosen anywhere on the page.
function lead(picked, { kind, layer }, head) {
  picked.set({ kind, layer, head });
  document.getElementById("look").scrollIntoView({ block: "nearest" });
}

// Functions that make each control from the current choices; they return null or false if there is only one choice.
const controls = (book, maps, picked) => ({
  kinds({ kind }) {
    const kinds = kindsOf(maps).map((one) => [one, KINDS[one].name]);
    return kinds.length > 1 && choice("Kind of attention", kinds, kind, (one) => picked.set(firstOf(maps, one)));
  },
  layers({ kind, layer }) {
    const layers = maps.filter((map) => map.kind === kind);
    if (layers.length < 2) return html("code", {}, layers[0].name);
    // A pruned layer may lack the head that was chosen in another.
    const hasHead = (one) => layers.some((map) => map.layer === one && picked.values.head in map.weights);
    return choice("Layer", [...layers.map((map) => [map.layer, `layer ${map.layer}`]), [ALL, "all"]], layer,
      (one) => picked.set(hasHead(one) ? { layer: one } : { layer: one, head: AVERAGE }));
  },
  heads(values) {
    const [map] = chosenMaps(maps, values);
    if (values.layer === ALL || map.weights.length === 1) return null;
    const merged = map.weights.map((matrix) => book.between(matrix, map.rows, map.columns, values.unit));
    return headChoice(merged, values.head, (head) => picked.set({ head }));
  },
});

function drawings(views, compared) {
  if (compared !== "both") {
    return [{ make: weights.facing, view: views[compared] }, { make: weights.map, view: views[compared] }];
  }
  return [{ make: weights.map, view: views.raw, title: "Raw weights" },
    { make: weights.map, view: views.effective, title: "Effective weights" }];
}
function scaleNodes({ raw: { most } }, compared) {
  return [compared === "raw" ? "0" : figure(-most), html("i", {}), figure(most)];
}

// `follow(view, cursor)` is called on every move of the cursor; `beside` is a control beside the heads.
function lookView(book, maps, picked, follow, beside) {
  const made = controls(book, maps, picked);
  const fields = Object.fromEntries(Object.keys(made).map((name) => [name, html("div", { class: name })]));
  const [told, notice] = [html("p", { class: "told" }), html("div", { "aria-live": "polite" })];
  const scale = html("span", { class: "scale" });
  let [views, compared] = [null, "raw"];

  function say(view, at) {
    const said = cursor.describe(view, at);
    if (compared !== "both" || at.row === null || at.column === null) return said;
    return `${said.slice(0, -1)}; effective weight ${figure(views.effective.matrix[at.row][at.column])}.`;
  }
  const panels = cursor.panels({ say, follow: (at) => follow(views[compared] ?? views.raw, at) });

  function show(values) {
    views = viewsOf(book, maps, values);
    // A control with the keyboard focus stays, so that it keeps the focus.
    for (const [name, field] of Object.entries(fields)) {
      if (!field.contains(document.activeElement)) field.replaceChildren(made[name](values) || "");
    }
    told.textContent = KINDS[values.kind].about;
    notice.replaceChildren(warning(maps, values, compared !== "raw") || "");
    scale.replaceChildren(...scaleNodes(views, compared));
    scale.classList.toggle("signed", compared !== "raw");
    const [count, most] = [views.raw.columns.length, compared === "both" ? MOST_TWICE : MOST_BROAD];
    panels.views.classList.toggle("wide", count > most);
    panels.views.classList.toggle("broad", count > MOST_BESIDE && count <= most && compared !== "both");
    panels.show(drawings(views, compared));
  }
  picked.listen(show);
  show(picked.values);

  const unit = book.hasSubwords && choice("Unit", [["words", "words"], ["tokens", "tokens"]], picked.values.unit,
    (value) => picked.set({ unit: value }));
  const weighing = views.effective && choice("Weights", COMPARED.map((name) => [name, name]), compared,
    (value) => { compared = value; show(picked.values); });
  const node = html("figure", { class: "look", id: "look" },
    html("div", { class: "bar" }, fields.kinds, fields.layers, weighing, unit),
    html("div", { class: "bar" }, fields.heads, beside),
    html("div", { class: "bar" }, told, scale), notice, panels.says, panels.views);
  return { node, point: panels.point, sides: () => views.raw.sides };
}

export { firstOf, lead, lookView };
