// The evaluation of a test set: scores with intervals, scores by length, and every sentence. If a second system is
// compared with the first, it is grey, and the first has the colour of the target.
import { words, differences, tidy } from "../common/differences.js";
import {
  html, svg, isNumber, number, round, plural, linear, ticks, textWidth, shorten, responsive, choice, table,
} from "../common/draw.js";
import * as frame from "../common/frame.js";
import * as histograms from "../common/histograms.js";
import { roving } from "../common/keys.js";

const { section } = frame;
const AT_FIRST = 20;
const MEANINGS = {
  empty: "empty output", loops: "repeated words", copies: "mostly copied from the source",
  "cut off": "the length limit was reached", script: "mostly in a script that the target language does not use",
  length: "far longer or shorter than the source", retried: "failed at first; translated again with safer settings",
  split: "a long line, translated in pieces",
};

const data = JSON.parse(document.getElementById("data").textContent);
const list = (value) => (Array.isArray(value) ? value : []);
const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const metrics = Object.entries(data.metrics ?? {}).filter(([key]) => isNumber(data[key]));
const both = [data, data.against].filter(Boolean);
const shorts = both.map(({ name }) => clip(name ?? "", 24));
const most = new Set(shorts).size < both.length ? Infinity : 24; // names that begin alike are not shortened
const systems = both.map((system, place) =>
  ({ ...system, side: place ? "second" : "first", short: clip(system.name ?? "", most) }));
const isPair = systems.length > 1;
const languages = data.languages ?? {};
const names = frame.names(languages);
const lines = list(data.lines).map((line, index) => ({
  ...line, number: index + 1, made: [line, line.against].slice(0, systems.length),
  isExact: tidy(line.translation) === tidy(line.reference),
}));
const score = (value) => number(value, 1);
const signed = (value) => `${value > 0 ? "+" : ""}${score(value)}`;
const percent = (count) => `${number((100 * count) / lines.length)} %`;
const range = (name) => name.replace("-", "–");
const between = (ends, text = score) => (ends ? `${text(ends[0])} to ${text(ends[1])}` : "–");
const legend = () => isPair && systems.map(({ side, name }) => html("span", { class: `system ${side}` }, name));

// ---- title page
function deck() {
  const pairs = languages.source && languages.target ? `, ${names.source} into ${names.target}` : "";
  const exact = lines.filter((line) => line.isExact).length;
  const said = data.verdict
    || `${number(exact)} of the translations (${percent(exact)}) equal the reference exactly.`;
  return lines.length > 0 && html("p", { class: "deck" }, `${plural(lines.length, "sentence")}${pairs}. ${said}`);
}

function card([key, { label, better }]) {
  const apart = data.differences?.[key];
  const host = html("div", { class: "plot" });
  const said = systems.map((one) => `${one.name} ${score(one[key])}, 95 % interval ${between(one.intervals?.[key])}`);
  responsive(host, (width) => host.replaceChildren(strip(key, `${label}: ${said.join("; ")}.`, width)));
  return html("article", { class: "card", "aria-label": label },
    html("h2", { class: "tag" }, label, html("span", {}, ` ${better} is better`)),
    html("div", { class: "values" }, systems.map((one) =>
      html("p", { class: `value ${one.side}` }, score(one[key]), isPair && html("span", {}, one.name)))),
    host,
    apart && html("p", { class: "apart" }, html("strong", {}, signed(apart.difference)),
      apart.interval && ` (${between(apart.interval, signed)}), p = ${number(apart.p, 3)}`),
    apart && isNumber(apart.p) && html("p", { class: "notes" },
      apart.better ? `${apart.better} is better.` : "The difference may be due to chance."),
    html("p", { class: "notes signature" }, (data.signatures?.[key] ?? "").split("|")
      .flatMap((part, index) => (index ? ["|", html("wbr", {}), part] : [part]))));
}

// The interval of each system, on one scale.
function strip(key, label, width) {
  const ends = systems.flatMap((one) => [one[key], ...list(one.intervals?.[key])]);
  const marks = ticks(Math.min(...ends) - 0.2, Math.max(...ends) + 0.2, 4);
  const x = linear([marks[0], marks.at(-1)], [14, width - 14]);
  const bottom = 8 + 16 * systems.length;
  return svg("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${bottom + 20}` },
    marks.map((mark) => [
      svg("line", { class: "grid", x1: x(mark), x2: x(mark), y1: 0, y2: bottom }),
      svg("text", { class: "tick", x: x(mark), y: bottom + 16, "text-anchor": "middle" }, round(mark))]),
    svg("line", { class: "base", x1: x(marks[0]), x2: x(marks.at(-1)), y1: bottom, y2: bottom }),
    systems.map((one, place) => whisker(one, one.intervals?.[key], x, 11 + 16 * place, x(one[key]))));
}
const whisker = ({ side }, ends, x, y, middle) => svg("g", { class: `mark-${side}` },
  ends && svg("line", { class: "whisker", x1: x(ends[0]), x2: x(ends[1]), y1: y, y2: y }),
  svg("circle", { cx: middle, cy: y, r: 4.5 }));

// ---- by length
const buckets = list(data.buckets).map((bucket, place) => ({
  name: bucket.words, count: bucket.sentences, made: systems.map((one) => one.buckets[place]),
}));

function lengths() {
  if (!buckets.length || !metrics.length) return null;
  const host = html("div", { class: "plot lengths" });
  const state = { key: metrics[0][0], width: 0 };
  const render = () => state.width && host.replaceChildren(lengthBars(state.key, state.width));
  responsive(host, (width) => { state.width = width; render(); });
  const pick = choice("Metric", metrics.map(([key, { label }]) => [key, label]), state.key,
    (key) => { state.key = key; render(); });
  const rows = buckets.map(({ name, count, made }) => [range(name), number(count), ...metrics.flatMap(([key]) =>
    made.map((one) => score(one[key])))]);
  const headings = metrics.flatMap(([, { label }]) =>
    systems.map(({ name }) => (isPair ? `${label} ${name}` : label)));
  return html("div", {}, html("div", { class: "bar" }, pick, legend()), host,
    html("details", {}, html("summary", {}, "Lengths as a table"),
      html("div", { class: "wide" }, table(["words", "sentences", ...headings], rows, "numbers"))));
}

function lengthBars(key, width) {
  const { label } = data.metrics[key];
  const tops = buckets.flatMap(({ made }) => made.flatMap((one) => [one[key], ...list(one.intervals?.[key])]));
  const marks = ticks(0, Math.max(...tops, 1), 4);
  const [top, bottom, left] = [24, 250, 12 + textWidth(round(marks.at(-1)), 12, "--sans")];
  const y = linear([0, marks.at(-1)], [bottom, top]);
  const room = (width - left) / buckets.length;
  const thick = Math.min(72, (room * 0.72) / systems.length);
  const said = buckets.map(({ name, made }) => `${name} words ${made.map((one) => score(one[key])).join(" and ")}`);
  return svg("svg", { role: "img", "aria-label": `${label} by length: ${said.join("; ")}.`,
    viewBox: `0 0 ${width} ${bottom + 42}` },
  marks.map((mark) => [
    svg("line", { class: mark ? "grid" : "base", x1: left, x2: width, y1: y(mark), y2: y(mark) }),
    svg("text", { class: "tick", x: left - 8, y: y(mark) + 4, "text-anchor": "end" }, round(mark))]),
  buckets.map(({ name, count, made }, place) => {
    const middle = left + room * (place + 0.5);
    const amount = plural(count, "sentence");
    return [
      made.map((one, which) =>
        bar(one, key, systems[which], middle + (which - systems.length / 2) * thick, thick, y, bottom)),
      svg("text", { class: "bucket", x: middle, y: bottom + 18, "text-anchor": "middle" }, range(name)),
      svg("text", { class: "tick", x: middle, y: bottom + 35, "text-anchor": "middle" },
        textWidth(amount, 12, "--sans") > room ? number(count) : amount),
    ];
  }));
}

// A bar with its number inside, and the interval as a line.
function bar(one, key, system, x, thick, y, bottom) {
  const [value, ends] = [one[key], one.intervals?.[key]];
  const middle = x + thick / 2;
  const isTall = bottom - y(ends ? ends[0] : value) > 40;
  return svg("g", { class: `mark-${system.side}` },
    svg("rect", { class: "length-bar", x: x + 1.5, width: thick - 3, y: y(value), height: bottom - y(value) },
      svg("title", {}, `${system.name}: ${score(value)}, 95 % interval ${between(ends)}`)),
    ends && svg("line", { class: "whisker", x1: middle, x2: middle, y1: y(ends[0]), y2: y(ends[1]) }),
    thick > 26 && isTall &&
      svg("text", { class: "inside", x: middle, y: bottom - 8, "text-anchor": "middle" }, score(value)));
}

// ---- scores of sentences
function spreadOfScores() {
  if (!lines.length) return null;
  if (!isPair) {
    const counts = new Array(21).fill(0);
    lines.forEach(({ chrf }) => { counts[Math.round(chrf / 5)] += 1; });
    return histograms.scoreFigure(counts.map((count, place) => [5 * place, count]));
  }
  const host = html("div", { class: "plot" });
  responsive(host, (width) => host.replaceChildren(balance(width), facing(width)));
  return html("figure", {}, host);
}

// The number of sentences that each system translates better.
const isBetter = { first: (line) => line.difference > 0, same: (line) => line.difference === 0,
  second: (line) => line.difference < 0 };
const counted = (test) => lines.filter(test).length;
function balance(width) {
  const parts = [["first", `${systems[0].short} better`], ["same", "equal"], ["second", `${systems[1].short} better`]]
    .map(([side, label]) => ({ side, label, count: counted(isBetter[side]) }));
  let from = 0;
  const label = parts.map((part) => `${part.label}: ${plural(part.count, "sentence")}`).join("; ");
  return svg("svg", { class: "balance", role: "img", "aria-label": `${label}.`, viewBox: `0 0 ${width} 62` },
    parts.map(({ side, label: text, count }) => {
      const [x, size] = [from, (width * count) / lines.length];
      from += size;
      const anchor = { first: [0, "start"], same: [width / 2, "middle"], second: [width, "end"] }[side];
      return [
        count > 0 && svg("rect",
          { class: `balance-${side}`, x: x + 0.75, width: Math.max(0.5, size - 1.5), y: 24, height: 14 }),
        svg("text", { class: `series-label balance-label-${side}`, x: anchor[0], y: 16, "text-anchor": anchor[1] },
          `${number(count)} ${width < 480 && side !== "same" ? "better" : text}`),
      ];
    }));
}

// Histograms of the chrF of sentences, one system on each side of a vertical axis.
function facing(width) {
  const [row, top, spine, middle] = [15, 30, 26, width / 2];
  const bin = (value) => (value >= 99.995 ? 0 : 20 - Math.floor(value / 5));
  const sides = systems.map((one, place) => {
    const counts = new Array(21).fill(0);
    lines.forEach((line) => { counts[bin(line.made[place].chrf)] += 1; });
    return { ...one, counts };
  });
  const rows = Math.max(...sides.map(({ counts }) => counts.findLastIndex(Boolean))) + 1;
  const most = Math.max(...sides.flatMap(({ counts }) => counts));
  const nameOf = (place) => (place ? `${100 - 5 * place}–${105 - 5 * place}` : "100");
  const reach = (count) => Math.max(1, ((middle - spine - 40) * count) / most);
  const said = sides.map(({ name, counts }) => `${name}: ${counts[0]} at 100`).join("; ");
  const label = `chrF of each sentence. ${said}.`;
  return svg("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${top + rows * row + 4}` },
    Array.from({ length: rows }, (_, place) => svg("text",
      { class: "tick", x: middle, y: top + place * row + 10.5, "text-anchor": "middle" }, nameOf(place))),
    sides.map(({ side, name, counts }) => {
      const isLeft = side === "first";
      const at = (distance) => middle + (isLeft ? -1 : 1) * (spine + distance);
      return svg("g", { class: `mark-${side}` },
        svg("text", { class: "series-label", x: at(0), y: 16, "text-anchor": isLeft ? "end" : "start" },
          shorten(name, middle - spine, 13, "--sans")),
        counts.slice(0, rows).map((count, place) => count > 0 && [
          svg("rect", { class: "length-bar", x: isLeft ? at(reach(count)) : at(0), width: reach(count),
            y: top + place * row, height: row - 3 },
          svg("title", {}, `${name}, chrF ${nameOf(place)}: ${plural(count, "sentence")}`)),
          svg("text", { class: "tick", x: at(reach(count) + 6), y: top + place * row + 10.5,
            "text-anchor": isLeft ? "end" : "start" }, number(count))]));
    }));
}

// ---- sentences
// The words of a text, each in a <mark> if it has classes, together with the space before a word of equal classes.
const marked = (pieces, classes) => pieces.map(({ text, after }, index) => {
  const isJoined = classes[index] === classes[index + 1];
  if (!classes[index]) return [text, after];
  return [html("mark", { class: classes[index] }, text, isJoined && after), !isJoined && after];
});
const verse = (side, content) => html("p", { class: `verse ${side}`, lang: languages[side], dir: "auto" }, content);

// Left: source and reference. Right: the translations.
function lineNode(line) {
  const reference = words(tidy(line.reference), languages.target);
  const made = line.made.map((one, place) => {
    const pieces = words(tidy(one.translation), languages.target);
    const [extra, missing] = differences(pieces, reference);
    return { ...one, side: systems[place].side, name: systems[place].name, pieces, extra, missing };
  });
  const missed = reference.map((_, index) =>
    made.filter(({ missing }) => missing[index]).map(({ side }) => `missed-${side}`).join(" "));
  return html("li", { class: "sample line" },
    html("div", { class: "leaf source", "data-line": number(line.number) }, verse("source", tidy(line.source)),
      html("div", { class: "reference" },
        html("span", { class: "tag" }, "reference"), verse("target", marked(reference, missed)))),
    html("div", { class: "leaf target" }, made.map(({ side, name, chrf, flags: found, pieces, extra }) =>
      html("div", { class: `made ${side}` },
        html("p", { class: "notes" }, isPair && html("span", { class: "system" }, name), `chrF ${score(chrf)}`,
          isPair && side === "first" && line.difference !== 0 && ` (${signed(line.difference)})`,
          found.map((flag) => html("span", { class: "flag", title: MEANINGS[flag] }, flag))),
        verse("target", pieces.length ? marked(pieces, extra.map((isExtra) => isExtra && "extra"))
          : html("em", {}, "nothing"))))));
}

const orders = [
  ...(isPair ? [
    ["largest difference", (line) => -Math.abs(line.difference)],
    [`${systems[0].short} better by most`, (line) => -line.difference],
    [`${systems[1].short} better by most`, (line) => line.difference],
  ] : []),
  ["lowest chrF", (line) => line.chrf],
  ["order of the test set", (line) => line.number],
  ["longest first", (line) => -tidy(line.source).length],
];
const flagged = (line) => line.made.some((one) => one.flags.length > 0);
const filters = [
  ["all", () => true],
  ...(isPair ? [[`${systems[0].short} better`, isBetter.first], [`${systems[1].short} better`, isBetter.second]]
    : [["different from the reference", (line) => !line.isExact]]),
  ["flagged", flagged],
].map(([label, test]) => ({ label, test, count: counted(test) })).filter(({ count }) => count > 0);
const field = (label, control) => html("label", { class: "field" }, label, control);
const select = (options) => html("select", {}, options.map((label, value) => html("option", { value }, label)));

function sentences() {
  if (!lines.length) return null;
  const state = { filter: 0, shown: AT_FIRST };
  const order = select(orders.map(([label]) => label));
  const length = select(["any", ...buckets.map(({ name }) => range(name))]);
  const find = html("input", { type: "search", placeholder: "press /", autocomplete: "off" });
  const status = html("p", { class: "notes", role: "status" });
  const host = html("div", {});
  const more = html("button", { type: "button", class: "quiet more" });

  function render() {
    const text = find.value.trim().toLowerCase();
    const bucket = buckets[length.value - 1]?.name;
    const rank = orders[order.value][1];
    const wanted = lines.filter((line) => filters[state.filter].test(line) && (!bucket || line.bucket === bucket) &&
      (!text || [line.source, line.reference, ...line.made.map((one) => one.translation)]
        .some((part) => part.toLowerCase().includes(text))))
      .map((line) => [rank(line), line]).sort(([one], [other]) => one - other).map(([, line]) => line);
    const nodes = wanted.slice(0, state.shown).map(lineNode);
    host.replaceChildren(nodes.length ? roving(html("ol", { class: "samples spread" }, nodes), nodes, 1)
      : html("p", { class: "nothing" }, "No sentence matches."));
    status.textContent = `${number(nodes.length)} of ${plural(wanted.length, "sentence")}`;
    more.hidden = nodes.length === wanted.length;
    more.textContent = `Show ${number(Math.min(AT_FIRST, wanted.length - nodes.length))} more`;
  }
  const afresh = () => { state.shown = AT_FIRST; render(); };
  [order, length].forEach((control) => control.addEventListener("change", afresh));
  find.addEventListener("input", afresh);
  more.addEventListener("click", () => { state.shown += AT_FIRST; render(); });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select")) return;
    event.preventDefault();
    find.focus();
  });
  render();
  return html("div", {},
    html("div", { class: "bar" }, filters.length > 1 && choice("Which sentences",
        filters.map(({ label, count }, place) => [place, `${label} ${number(count)}`]), 0,
        (place) => { state.filter = place; afresh(); })),
    html("div", { class: "bar" },
      field("sort by", order), buckets.length > 1 && field("words", length), field("find", find)),
    status, host, more);
}

// ---- flags and method
function flags() {
  const found = [...new Set(systems.flatMap((one) => Object.keys(one.flags ?? {})))];
  return found.length > 0 && table(["flag", ...systems.map((one) => one.name), "meaning"], found.map((name) =>
    [name, ...systems.map((one) => number(one.flags[name] ?? 0)), MEANINGS[name] ?? ""]), "flags");
}
function method() {
  const { samples: drawn, seed } = data.bootstrap ?? {};
  const rows = [
    ...["source", "target"].map((side) => data.test?.[side] && [`test set, ${side}`, data.test[side]]),
    drawn && ["bootstrap", `${number(drawn)} resamples, seed ${seed}; the same draws for every score`],
    ...systems.map((one) => one.made?.arch && [one.name, [one.made.arch, ...list(one.made.ensemble)].join(" + ")]),
    ...list(data.notes).map((note) => ["note", note]),
  ].filter(Boolean);
  const searches = systems.filter((one) => one.made?.search).map((one) => html("details", {},
    html("summary", {}, `Search of ${one.name}`),
    table(null, Object.entries(one.made.search).map(([name, value]) => [name, String(value)]), "values")));
  return metrics.length > 0 && [table(null, rows, "values"), searches];
}

const judged = ["Marked in a translation: words that are not in the reference. Dotted in the reference: words not in a "
  + "translation.", "Use the arrow keys to move between sentences."];
frame.sign({ created: data.created, version: data.version });
document.getElementById("view").replaceChildren(
  html("div", { class: "title-page" }, html("h1", {}, data.title || "Evaluation"), deck(),
    metrics.length > 0 && html("div", { class: "cards" }, metrics.map(card))),
  ...[
    section("lengths", "By length",
      "By number of words in the source. Thin lines are 95 % confidence intervals; groups of few sentences have none.",
      lengths()),
    section("scores", "Sentence scores", "chrF of each sentence, computed on that sentence alone.", spreadOfScores()),
    section("sentences", "Sentences", judged, sentences()),
    section("flags", "Flags", "Signs of a bad translation that can be seen without the reference.", flags()),
    section("method", "Method", "Intervals hold 95 % of the scores on bootstrap resamples of the test set. "
      + "p is the probability of a difference this large by chance.", method()),
  ].filter(Boolean));
