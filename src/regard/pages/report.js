"use strict";
// The report of a training run: reads the data of the page and lays out its sections. What is missing is left out.
(() => {
  const { html, isNumber, number, figure, large, plural, duration, languageName, table } = draw;
  const data = JSON.parse(document.getElementById("data").textContent);
  const languages = data.languages ?? {};
  const names = { source: languageName(languages.source) || "Source", target: languageName(languages.target) || "Translation" };
  const list = (value) => (Array.isArray(value) ? value : []);
  const [updates, validations] = [list(data.updates), list(data.validations)];

  function section(id, title, message, ...content) {
    const filled = content.filter(Boolean);
    if (!filled.length) return null;
    return html("section", { "aria-labelledby": id },
      html("div", { class: "margin" }, html("h2", { id }, title), message && html("p", {}, message)),
      html("div", { class: "content" }, filled));
  }

  // ---- headline
  const longest = (key) => Math.max(0, ...[...updates, ...validations].map((record) => record[key]).filter(isNumber));

  function sentence() {
    const pairs = list(data.card?.data).reduce((sum, part) => sum + (isNumber(part?.pairs) ? part.pairs : 0), 0);
    const [steps, seconds] = [longest("step"), longest("seconds")];
    const size = isNumber(data.card?.parameters) ? ` of ${large(data.card.parameters)} parameters` : "";
    const learnt = languages.source && languages.target ? [" learnt to turn ", html("span", { class: "source" }, names.source),
      " into ", html("span", { class: "target" }, names.target)] : [" was trained"];
    const from = pairs ? ` from ${plural(pairs, "sentence pair")}` : "";
    const cost = [seconds && `in ${duration(seconds)}`, steps && `${seconds ? "" : "in "}${plural(steps, "update")}`].filter(Boolean).join(" and ");
    if (!size && learnt.length === 1 && !from && !cost) return null;
    return html("p", { class: "deck" }, `A model${size}`, learnt, from, cost && ` ${cost}`, ".");
  }

  const figuresRow = () => list(data.summary).length > 0 && html("dl", { class: "figures" }, data.summary.map((item) =>
    html("div", {}, html("dt", {}, item.label), html("dd", {}, item.value), item.note && html("dd", { class: "note" }, item.note))));

  // One short sample, as it came, set large on two facing pages.
  function frontispiece() {
    const sample = list(data.samples).find((one) => one.source && one.translation && one.source.split(/\s+/).length <= 12);
    const page = (side, text) => html("div", { class: `leaf ${side}` },
      html("span", { class: "tag" }, names[side]), html("p", { lang: languages[side] || null, dir: "auto" }, samples.tidy(text)));
    return sample && html("div", { class: "spread frontispiece" }, page("source", sample.source), page("target", sample.translation));
  }

  const headline = () => html("div", { class: "title-page" },
    html("h1", {}, data.title || "Training report"), sentence(), frontispiece(), figuresRow());

  // ---- tables
  function validationTable() {
    const columns = [["loss", "loss"], ["bleu", "BLEU"], ["chrf", "chrF"]].filter(([key]) => validations.some((one) => isNumber(one[key])));
    if (!validations.length || !columns.length) return null;
    const rows = validations.map((one) => [
      [isNumber(one.step) ? number(one.step) : "–", one.best && html("span", { class: "tag" }, " best")],
      ...columns.map(([key]) => (isNumber(one[key]) ? figure(one[key]) : "–"))]);
    return html("details", {}, html("summary", {}, "Validations as a table"), table(["update", ...columns.map(([, title]) => title)], rows, "numbers"));
  }

  const planTable = () => list(data.plan).length > 0 && table(["setting", "value", "why"],
    data.plan.map((item) => [html("code", {}, item.name), html("span", { class: "value" }, String(item.value ?? "")), item.reason ?? ""]), "plan");

  // Nested values as rows with dotted names.
  function flatten(value, name = "") {
    if (Array.isArray(value) && value.every((item) => item === null || typeof item !== "object")) return [[name, value.map(show).join(", ") || "none"]];
    if (value === null || typeof value !== "object") return [[name, show(value)]];
    const rows = Object.entries(value).flatMap(([key, item]) => flatten(item, name ? `${name}.${key}` : key));
    return rows.length ? rows : [[name, "none"]];
  }
  const show = (value) => (value === null || value === "" ? "–" : isNumber(value) && Math.abs(value) >= 1e15 ? value.toExponential(2) : String(value));
  function folded(title, value) {
    if (value === null || typeof value !== "object" || !Object.keys(value).length) return null;
    return html("details", {}, html("summary", {}, title), table(null, flatten(value), "values"));
  }

  function colophon() {
    const created = data.created && new Date(data.created);
    const when = created && !Number.isNaN(created.getTime()) && html("time", { datetime: data.created },
      created.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" }));
    document.getElementById("run").append(...[data.run && `run ${data.run}`, when].filter(Boolean).flatMap((part, index) => (index ? [" · ", part] : [part])));
    document.getElementById("colophon").append(
      html("p", {}, "A bilingual book prints its translation ", html("em", { lang: "fr" }, "en regard"), ", on the facing page."),
      html("p", { class: "notes" }, `Made by Regard${data.version ? ` ${data.version}` : ""}. This file is whole: it asks nothing of any network.`));
  }

  const parts = [
    section("learning", "Learning", curve.message(data), curve.learningCurve(data), validationTable()),
    section("samples", "Samples", samples.message(list(data.samples)), samples.samplesView(list(data.samples), languages, names)),
    section("attention", "Attention", "Each row is a word of the translation, and shows which words of the source it looked at while it was written.",
      attention.attentionView(data.attention)),
    section("distributions", "Lengths and scores", "How long the sentences are, and how sure the model is of each translation (log-probability a token; 0 is certain).",
      figures.lengthFigure(data.lengths, names), figures.scoreFigure(data.score_histogram)),
    section("plan", "Plan", "What was chosen from the data and the machine, and why.", planTable()),
    section("settings", "Settings and card", "Everything needed to do it again.",
      ...Object.entries(data.settings ?? {}).map(([name, value]) => folded(name, value)), folded("model card", data.card)),
  ].filter(Boolean);
  colophon();
  document.getElementById("report").replaceChildren(headline(), ...parts,
    ...(parts.length ? [] : [html("p", { class: "nothing" }, "Nothing has been recorded in this run yet.")]));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
})();
