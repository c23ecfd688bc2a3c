// Attributions of one output word to the source words and to the output words before it.
import * as cursor from "../common/cursor.js";
import { html, figure, choice } from "../common/draw.js";
import * as running from "../common/running.js";
import * as trust from "./trust.js";
import * as weights from "../common/weights.js";


const total = (list) => list.reduce((sum, share) => sum + Math.abs(share), 0);
const sentenceCase = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

// One row per method: shares of the source words, then of the prefix; absolute shares sum to one.
function linesFor(book, methods, word) {
  return methods.map(({ source, target }) => {
    const line = [...book.between(source, "target", "source", "words")[word],
      ...book.between(target, "target", "prefix", "words")[word]];
    const all = total(line) || 1;
    return line.map((share) => share / all);
  });
}
// All methods as one map, whose columns are the source, a gap, and the prefix of the word.
function mapOf(lines, methods, from, before, word) {
  const [read, count] = [before.slice(0, word + 1), from.length];
  return {
    matrix: lines.map((line) => [...line.slice(0, count), null, ...line.slice(count, count + read.length)]),
    rows: methods.map(({ title }) => title), columns: [...from, "", ...read], cell: 30,
    sides: { rows: "plain", columns: (at) => (at < from.length ? "source" : "target") },
    label: `Attribution of a word by ${methods.length} methods.`,
  };
}
function say({ matrix, rows, columns }, { row, column }) {
  if (row === null || !columns[column]) return "Point at a cell to see the share that a method gives to a word.";
  return `${rows[row]} gives “${columns[column]}” a share of ${figure(matrix[row][column])}.`;
}

function creditView(book, attribution, languages) {
  const methods = attribution?.methods ?? [];
  if (!methods.length) return null;
  const [from, to, before] = ["source", "target", "prefix"].map((side) => book.seen(side, "words").texts);
  const trusted = trust.first(methods, attribution.faithfulness);
  // Begin with a word in the middle, because it has words before it.
  let [method, word] = [Math.max(0, methods.indexOf(trusted)), Math.min(to.length - 1, Math.max(1, to.length >> 1))];
  const source = running.text("source", book.pieces("source", "words"), languages.source);
  const target = running.text("target", book.pieces("target", "words"), languages.target,
    { label: "Words of the translation; choose one", onChoose: (at) => { word = at; show(); } });
  const says = html("p", { class: "says finding", role: "status" });
  const [name, about] = [html("p", { class: "panel-name" }), html("p", { class: "told" })];
  const panels = cursor.panels({ name: "Shares by method", say });
  panels.views.classList.add("wide");

  function shade(line) {
    const most = Math.max(...line.map(Math.abs)) || 1;
    const shares = line.map((share) => share / most);
    source.shade(shares.slice(0, from.length));
    target.shade(shares.slice(from.length + 1).slice(0, word)); // without the start token
    target.toggle("now", (at) => at === word);
    target.toggle("unwritten", (at) => at > word);
    target.words.forEach((one, at) => one.setAttribute("aria-pressed", at === word));
  }
  function show() {
    const lines = linesFor(book, methods, word);
    const line = lines[method];
    const best = weights.top(line);
    shade(line);
    about.textContent = sentenceCase(methods[method].about);
    says.textContent = `“${to[word]}” depends most on “${[...from, ...before][best]}” (${figure(line[best])}). The `
      + `source accounts for ${figure(total(line.slice(0, from.length)))} of the total, the words before it `
      + "for the rest.";
    name.replaceChildren("All methods for ", html("span", { class: "target" }, `“${to[word]}”`));
    panels.show([{ make: weights.map, view: mapOf(lines, methods, from, before, word) }]);
  }
  show();
  const leaf = (side, tag, node) => html("div", { class: `leaf ${side}` }, html("span", { class: "tag" }, tag), node);
  return html("figure", { class: "credit" },
    html("div", { class: "bar" }, choice("Method", methods.map(({ title }, index) => [index, title]), method,
      (chosen) => { method = chosen; show(); })), about, says,
    html("div", { class: "spread leaves" },
      leaf("source", "source", source.node), leaf("target", "choose a word", target.node)),
    name, panels.says, panels.views,
    trusted && trust.table(methods, attribution.faithfulness, trusted));
}

export { creditView };
