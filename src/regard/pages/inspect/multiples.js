// All heads at once, layers by heads, as small maps that can be chosen.
import * as attention from "../common/attention.js";
import * as compare from "./compare.js";
import { html, figure } from "../common/draw.js";
import * as keys from "../common/keys.js";
import * as look from "./look.js";
import * as toggles from "./switches.js";
import * as weights from "../common/weights.js";

const SIDES = { encoder: "source to source", decoder: "translation to itself", cross: "translation to source" };

const roleOf = (roles, { name }, head) => roles.find((one) => one.name === name && one.head === head)?.role;

// One head as { map, head, button, toggle, node }: its button, and below it its switch and its role.
function cell(map, head, roles, picked, switches) {
  const role = roleOf(roles, map, head);
  const said = [`${map.name}, head ${head}`, role, map.entropy && `entropy ${figure(map.entropy[head])} bits`]
    .filter(Boolean).join("; ");
  const button = html("button", { type: "button", class: "head", title: said, "aria-label": said });
  button.addEventListener("click", () => look.lead(picked, map, head));
  const toggle = switches && toggles.small(switches, map, head);
  const node = html("div", { class: toggle && switches.isOff(map.name, head) ? "head-cell off" : "head-cell" },
    button, toggle, role && html("span", { class: "role" }, role));
  return { map, head, button, toggle, node };
}
// The heads of one kind of attention, and their cells.
function panel(kind, maps, roles, picked, switches) {
  const layers = maps.filter((map) => map.kind === kind);
  const across = Math.max(...layers.map((map) => map.weights.length));
  const rows = layers.map((map) => map.weights.map((_, head) => cell(map, head, roles, picked, switches)));
  const empty = (count) => Array.from({ length: count }, () => html("span", {}));
  const { name } = compare.KINDS[kind];
  const grid = html("div", { class: "head-grid", role: "group", "aria-label": `${name}, layers by heads` },
    html("span", {}), Array.from({ length: across }, (_, head) => html("span", { class: "grid-head" }, head)),
    rows.map((row, index) => [html("span", { class: "grid-layer" }, layers[index].layer ?? ""),
      row.map(({ node }) => node), empty(across - row.length)]));
  keys.roving(grid, rows.flat().map(({ button }) => button), across);
  if (switches) keys.roving(grid, rows.flat().map(({ toggle }) => toggle), across);
  return { cells: rows.flat(), node: html("div", { class: "multiples" },
    html("p", { class: "panel-name" }, html("strong", {}, name), ` ${SIDES[kind]}`), grid) };
}

function multiplesView(book, maps, roles, picked, switches) {
  if (maps.reduce((sum, map) => sum + map.weights.length, 0) < 2) return null;
  const panels = Object.keys(SIDES).filter((kind) => maps.some((map) => map.kind === kind))
    .map((kind) => panel(kind, maps, roles, picked, switches));
  const cells = panels.flatMap((one) => one.cells);
  const node = html("figure", { class: "all-heads" }, panels.map((one) => one.node));
  node.style.setProperty("--heads", Math.max(...maps.map((map) => map.weights.length)));
  function paint({ unit }) {
    for (const { map, head, button } of cells) {
      button.replaceChildren(weights.thumbnail(book.between(map.weights[head], map.rows, map.columns, unit)));
    }
  }
  // Frames the heads that look.js shows; for an average, all its heads.
  function mark({ kind, layer, head: chosen }) {
    for (const { map, head, button } of cells) {
      const isPart = map.kind === kind && [map.layer, compare.ALL].includes(layer);
      button.setAttribute("aria-pressed", isPart && [head, attention.AVERAGE].includes(chosen));
    }
  }
  picked.listen((values, changes) => {
    if ("unit" in changes) paint(values);
    mark(values);
  });
  paint(picked.values);
  mark(picked.values);
  return node;
}

export { multiplesView };
