// Labels of a classifier: confusion matrix, calibration of probabilities, words and documents of each label.
import { html, svg, number, plural, linear, shorten, responsive, table } from "../common/draw.js";
import { percent, verdictView } from "../common/shading.js";

const MOST_DRAWN = 30;
const CELL = { least: 18, most: 72, figures: 34 };
const NAME = 12;

// ---- confusion
function matrixNode({ names, confusion, counted }, width) {
  const sums = confusion.map((row) => row.reduce((sum, count) => sum + count, 0));
  const left = Math.min(150, width / 3);
  const size = Math.max(CELL.least, Math.min(CELL.most, (width - left - 8) / names.length));
  const [top, side] = [26, size * names.length];
  const cells = confusion.flatMap((row, right) => row.map((count, given) => {
    const share = sums[right] ? count / sums[right] : 0;
    const [x, y] = [left + given * size, top + right * size];
    const kind = right === given ? "hit" : "miss";
    return svg("g", { class: `confused ${kind}` },
      svg("rect", { x, y, width: size - 1, height: size - 1, "fill-opacity": share.toFixed(3) }),
      size >= CELL.figures && svg("text", { x: x + size / 2, y: y + size / 2 + 4, "text-anchor": "middle",
        class: share > 0.55 ? "cell-figure over" : "cell-figure" }, number(count)),
      svg("title", {},
        `${names[right]} predicted as ${names[given]}: ${number(count)}, ${percent(share)} of its ${counted}`));
  }));
  const said = names.map((name, index) => `${name} ${percent(sums[index] ? confusion[index][index] / sums[index] : 0)}`);
  return svg("svg", { role: "img", viewBox: `0 0 ${Math.max(width, left + side)} ${top + side + 24}`,
    "aria-label": `Confusion matrix. Recall: ${said.slice(0, MOST_DRAWN).join(", ")}.` },
    svg("text", { class: "panel-title", x: left, y: 14 }, "predicted label"),
    svg("rect", { class: "ground", x: left - 0.5, y: top - 0.5, width: side, height: side }), cells,
    names.map((name, index) => svg("text", { class: "tick", x: left - 8, y: top + (index + 0.5) * size + 4,
      "text-anchor": "end" }, shorten(name, left - 12, NAME, "--sans"))),
    size >= CELL.figures && names.map((name, index) => svg("text", { class: "tick", x: left + (index + 0.5) * size,
      y: top + side + 16, "text-anchor": "middle" }, shorten(name, size - 4, NAME, "--sans"))));
}

function confusionView(labels) {
  if (!labels?.confusion || labels.names.length > MOST_DRAWN) return null;
  const host = html("div", { class: "plot" });
  responsive(host, (width) => host.replaceChildren(matrixNode(labels, width)));
  return html("figure", { class: "confusion" },
    html("figcaption", {},
      `Each row is a true label, each column a predicted one. Cells count ${labels.counted}.`), host);
}

// The pair of labels that is confused most often, as a sentence.
function confusionMessage(labels) {
  if (!labels?.confusion) return "";
  const pairs = labels.confusion.flatMap((row, right) =>
    row.map((count, given) => ({ count, right: labels.names[right], given: labels.names[given] })))
    .filter(({ count, right, given }) => count > 0 && right !== given)
    .sort((one, other) => other.count - one.count);
  if (!pairs.length) return `All ${labels.counted} were given the right label.`;
  const { count, right, given } = pairs[0];
  return `The most common error: ${right} predicted as ${given}, ${plural(count, "time")}.`;
}

const labelTable = (labels) => labels?.by_label && html("details", { open: labels.names.length <= 10 },
  html("summary", {}, "Precision, recall and F1 of each label"),
  table(["label", "precision", "recall", "F1", labels.unit], Object.entries(labels.by_label).map(([label, one]) =>
    [label, percent(one.precision), percent(one.recall), percent(one.f1), number(one.count)]), "numbers"));

// ---- calibration: x is the predicted probability, y how often such predictions are right
function reliabilityNode(bins, width) {
  const [height, margin] = [Math.min(300, Math.max(200, width * 0.6)), 38];
  const lowest = Math.min(...bins.map(({ confidence }) => confidence), 0.9);
  const start = Math.floor(lowest * 10) / 10;
  const x = linear([start, 1], [margin, width - 14]);
  const y = linear([0, 1], [height - 30, 12]);
  const most = Math.max(...bins.map(({ answers }) => answers));
  const marks = Array.from({ length: Math.round((1 - start) * 10) + 1 }, (_, index) => start + index / 10);
  const said = bins.map(({ confidence, right }) => `${percent(confidence)} sure: ${percent(right)} right`);
  return svg("svg", { role: "img", viewBox: `0 0 ${width} ${height}`, "aria-label": `Calibration. ${said.join("; ")}.` },
    [0, 0.25, 0.5, 0.75, 1].map((mark) => [
      svg("line", { class: mark ? "grid" : "base", x1: margin, x2: width - 14, y1: y(mark), y2: y(mark) }),
      svg("text", { class: "tick", x: margin - 6, y: y(mark) + 4, "text-anchor": "end" }, number(100 * mark))]),
    marks.filter((_, index) => marks.length < 7 || index % 2 === 0).map((mark) =>
      svg("text", { class: "tick", x: x(mark), y: height - 12, "text-anchor": "middle" }, number(100 * mark))),
    svg("line", { class: "best-line", x1: x(start), y1: y(start), x2: x(1), y2: y(1) }),
    bins.map(({ confidence, right, answers }) => svg("circle", { class: "reliable", cx: x(confidence), cy: y(right),
      r: 3 + 9 * Math.sqrt(answers / most) },
      svg("title", {}, `${percent(confidence)} sure, ${percent(right)} right: ${plural(answers, "answer")}`))));
}

function calibrationView(labels) {
  if (!labels?.reliability?.length) return null;
  const host = html("div", { class: "plot" });
  responsive(host, (width) => host.replaceChildren(reliabilityNode(labels.reliability, width)));
  return html("figure", { class: "calibration" },
    html("figcaption", {}, "Horizontal: the predicted probability in percent. Vertical: how often the prediction was "
      + "right. On the diagonal the model is well calibrated."),
    host);
}

// ---- words and documents
const labelWords = (found) => found?.length > 0 && html("div", { class: "label-words" },
  found.map(({ label, words }) => {
    const strongest = words[0].weight;
    return html("div", {}, html("h3", {}, label), html("p", {}, words.flatMap(({ text, weight }, index) => {
      const mark = html("span", { class: "shaded", title: `${percent(weight)} more attention than under other labels` }, text);
      mark.style.setProperty("--strength", (weight / strongest).toFixed(3));
      return index ? [" ", mark] : [mark];
    })));
  }));

const documentsView = (documents) => documents?.length > 0 &&
  html("div", { class: "verdicts" }, documents.map((one) => verdictView(one)));

export { confusionView, confusionMessage, labelTable, calibrationView, labelWords, documentsView };
