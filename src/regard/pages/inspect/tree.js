// The beam search as a tree: each column one step, the likeliest continuation at the top; kept, finished or dropped.
import { html, svg, figure, choice, textWidth, plural } from "../common/draw.js";

const [PITCH, EDGE, TOP] = [25, 44, 26];
const FONT = { token: 14, total: 11 };
const MOST_ENDS = 5;
const KEYS = ["kept", "finished", "dropped", "best"];
const HELP = "Beam search; use the arrow keys: left to the previous token, right to the best continuation, "
  + "up and down in rank";

// Nodes by step, best first, with their parents and children; those of the best finished hypothesis are marked.
function grow(nodes) {
  const made = new Map(nodes.map((node) => [node.id, { ...node, children: [] }]));
  const steps = [];
  for (const node of made.values()) {
    node.from = made.get(node.parent) ?? null;
    node.from?.children.push(node);
    (steps[node.step] ??= []).push(node);
  }
  steps.forEach((step) => step.sort((one, other) => other.total - one.total));
  const ends = [...made.values()].filter((node) => node.fate === "finished");
  let best = ends.reduce((top, node) => (top && top.score >= node.score ? top : node), null);
  for (; best; best = best.from) best.isBest = true;
  return steps;
}
const pathOf = (node) => (node ? [...pathOf(node.from), node] : []);

// Columns as wide as their words, rows by rank.
function layOut(steps, label) {
  const figures = textWidth("−00.00", FONT.total, "--sans");
  const first = textWidth("start", FONT.token, "--serif") + 12;
  const placed = [];
  let x = first + EDGE;
  for (const step of steps) {
    const words = step.map((node) => textWidth(label(node.token), FONT.token, "--serif"));
    step.forEach((node, row) => placed.push({ node, x, y: TOP + (row + 0.5) * PITCH, words: words[row],
      end: x + words[row] + figures + 22 }));
    x += Math.max(0, ...words) + figures + 22 + EDGE;
  }
  const rows = Math.max(1, ...steps.map((step) => step.length));
  return { placed, first, width: x - EDGE + 8, height: TOP + rows * PITCH + 6 };
}

const classes = (kind, { fate, isBest }) => `${kind} ${fate}${isBest ? " best" : ""}`;
function edgeNode({ node, x, y }, from) {
  const bend = (x - from.end) / 2;
  return svg("path", { class: classes("edge", node),
    d: `M${from.end} ${from.y}C${from.end + bend} ${from.y} ${x - bend} ${y} ${x - 2} ${y}` });
}
function markNode({ node, x, y, words, end }, label) {
  const { step, token, fate, total } = node;
  return svg("g", { class: classes("node", node), role: "button", tabindex: -1,
    "aria-label": `step ${step + 1}, ${label(token)}, ${fate}, log-probability ${figure(total)}` },
    svg("rect", { class: "target-area", x: x - 3, y: y - PITCH / 2, width: end - x, height: PITCH }),
    svg("circle", { cx: x + 3, cy: y, r: 3 }),
    svg("text", { class: "word", x: x + 12, y: y + 5, "font-size": FONT.token }, label(token)),
    svg("text", { class: "total", x: x + words + 19, y: y + 5, "font-size": FONT.total }, figure(total)));
}
// The drawing, and its parts as { node, mark, edge }.
function drawing(steps, label) {
  const { placed, first, width, height } = layOut(steps, label);
  const homes = new Map(placed.map((at) => [at.node, at]));
  const start = { end: first, y: TOP + PITCH / 2 };
  const parts = placed.map((at) => ({ node: at.node, mark: markNode(at, label),
    edge: edgeNode(at, homes.get(at.node.from) ?? start) }));
  const sheet = svg("svg", { class: "tree", width, height, viewBox: `0 0 ${width} ${height}` },
    steps.map((step, index) => step.length > 0
      && svg("text", { class: "tick", x: homes.get(step[0]).x + 12, y: 14 }, index + 1)),
    svg("text", { class: "word", x: 8, y: start.y + 5, "font-size": FONT.token }, "start"),
    parts.map(({ edge }) => edge), parts.map(({ mark }) => mark));
  return { sheet, parts };
}

// The part to which an arrow key moves.
function neighbour(parts, { node }, key) {
  const column = parts.filter((one) => one.node.step === node.step);
  const rank = column.findIndex((one) => one.node === node);
  if (key === "ArrowLeft") return parts.find((one) => one.node === node.from);
  if (key === "ArrowRight") return parts.find((one) => one.node.from === node); // the best of a step is first
  return column[rank + ({ ArrowUp: -1, ArrowDown: 1 }[key] ?? NaN)];
}
function describe(node, book) {
  const { fate, score, total, log_prob: last, token } = node;
  const said = fate === "finished" ? `finished, score ${figure(score)}` : fate;
  return `“${book.spell(pathOf(node).map((one) => one.token))}”: ${said}; log-probability ${figure(total)}, `
    + `${figure(last)} for “${book.label(token)}” alone.`;
}

// The finished hypotheses, best first.
function endsNode(steps, book) {
  const ends = steps.flat().filter((node) => node.fate === "finished").sort((one, other) => other.score - one.score);
  return ends.length > 0 && html("ol", { class: "ends" }, ends.slice(0, MOST_ENDS).map((node) => html("li", {},
    `${book.spell(pathOf(node).map((one) => one.token))} `, html("small", {}, `score ${figure(node.score)}`))));
}

function treeView(book, nodes) {
  if (!nodes?.length) return null;
  const grown = grow(nodes);
  const says = html("p", { class: "says", role: "status" });
  const box = html("div", { class: "scroll-box", role: "group", "aria-label": HELP });
  const tried = `${plural(nodes.length, "continuation")} tried in ${plural(grown.length, "step")}.`;
  let parts = [];

  function trace(node) {
    const path = new Set(pathOf(node));
    box.classList.toggle("tracing", path.size > 0);
    for (const part of parts) {
      [part.mark, part.edge].forEach((one) => one.classList.toggle("on", path.has(part.node)));
    }
    says.textContent = node ? describe(node, book) : `${tried} Point at one to see the whole hypothesis.`;
  }
  function go(event, part) {
    const to = neighbour(parts, part, event.key);
    if (!to) return;
    event.preventDefault();
    parts.forEach((one) => one.mark.setAttribute("tabindex", one === to ? 0 : -1));
    to.mark.focus();
    to.mark.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  function show(isWhole) {
    const drawn = drawing(grown.map((step) => step.filter((node) => isWhole || node.fate !== "dropped")), book.label);
    parts = drawn.parts;
    for (const part of parts) {
      ["pointerenter", "focus"].forEach((event) => part.mark.addEventListener(event, () => trace(part.node)));
      ["pointerleave", "blur"].forEach((event) => part.mark.addEventListener(event, () => trace(null)));
      part.mark.addEventListener("keydown", (event) => go(event, part));
    }
    parts[0]?.mark.setAttribute("tabindex", 0);
    box.replaceChildren(drawn.sheet);
    trace(null);
  }
  show(false);
  const legend = html("span", { class: "legend" },
    KEYS.map((name) => html("span", { class: `key ${name}` }, html("i", {}), name)));
  return html("figure", { class: "beam" }, html("div", { class: "bar" },
    choice("Continuations", [["kept", "kept and finished"], ["all", "all"]], "kept",
      (value) => show(value === "all")), legend), says, box, endsNode(grown, book));
}

export { treeView };
