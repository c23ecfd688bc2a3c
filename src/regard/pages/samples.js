"use strict";
// Samples as a bilingual book prints them: source on the left page, translation on the right, and below it the
// reference where it differs, with the words that differ marked on both.
const samples = (() => {
  const { html, figure, isNumber, plural, choice } = draw;
  const FIRST = 10;

  // Words with the space after them. A segmenter finds them in languages that are written without spaces, too.
  function words(text, language) {
    let pieces;
    try {
      pieces = Array.from(new Intl.Segmenter(language || undefined, { granularity: "word" }).segment(text), (part) => part.segment);
    } catch {
      pieces = text.split(/(\s+)/);
    }
    const found = [];
    for (const piece of pieces.filter(Boolean)) {
      if (/^\s+$/.test(piece) && found.length) found.at(-1).after += piece;
      else found.push({ text: piece, after: "" });
    }
    return found;
  }

  // Which words of each side are outside the longest common subsequence.
  function differences(one, other) {
    const table = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
    for (let i = one.length - 1; i >= 0; i--) {
      for (let j = other.length - 1; j >= 0; j--) {
        table[i][j] = one[i].text === other[j].text ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
      }
    }
    const [left, right] = [one.map(() => true), other.map(() => true)];
    for (let i = 0, j = 0; i < one.length && j < other.length;) {
      if (one[i].text === other[j].text) left[i++] = right[j++] = false;
      else if (table[i + 1][j] >= table[i][j + 1]) i++;
      else j++;
    }
    return [left, right];
  }

  // The text with runs of differing words in <mark>.
  function marked(list, isDifferent) {
    const nodes = [];
    list.forEach(({ text, after }, index) => {
      if (!isDifferent[index]) nodes.push(text + after);
      else if (isDifferent[index - 1]) nodes.at(-1).append(text);
      else nodes.push(html("mark", {}, text));
      if (isDifferent[index]) isDifferent[index + 1] ? nodes.at(-1).append(after) : nodes.push(after);
    });
    return nodes;
  }

  const tidy = (text) => (text ?? "").trim().replace(/\s+/g, " ");
  const differs = (sample) => Boolean(sample.reference) && sample.correct !== true && tidy(sample.reference) !== tidy(sample.translation);

  function verse(sample, languages) {
    const isDifferent = differs(sample);
    const [ours, theirs] = [words(tidy(sample.translation), languages.target), words(tidy(sample.reference), languages.target)];
    const [extra, missing] = isDifferent ? differences(ours, theirs) : [[], []];
    const text = (kind, language, ...content) => html("p", { class: `verse ${kind}`, lang: language || null, dir: "auto" }, content);
    const notes = [
      isNumber(sample.score) && `score ${figure(sample.score)}`,
      sample.reference && !isDifferent && (tidy(sample.reference) === tidy(sample.translation) ? "as the reference" : "counted as correct"),
    ].filter(Boolean);
    return html("li", { class: isDifferent ? "sample differing" : "sample" },
      html("div", { class: "leaf source" }, text("source", languages.source, tidy(sample.source))),
      html("div", { class: "leaf target" },
        text("target", languages.target, marked(ours, extra)),
        isDifferent && html("div", { class: "reference" }, html("span", { class: "tag" }, "reference"),
          text("expected", languages.target, marked(theirs, missing))),
        notes.length > 0 && html("p", { class: "notes" }, notes.join(" · "))));
  }

  function message(list) {
    const judged = list.filter((sample) => sample.reference);
    const same = judged.filter((sample) => !differs(sample)).length;
    if (!judged.length) return plural(list.length, "translation") + ".";
    return same === judged.length ? `All ${plural(judged.length, "translation")} shown here match the reference.`
      : `${same} of ${plural(judged.length, "translation")} shown here match the reference; where one differs, the words are marked.`;
  }

  function samplesView(list, languages, names) {
    if (!list.length) return null;
    const verses = list.map((sample) => ({ isDiffering: differs(sample), node: verse(sample, languages) }));
    const page = html("ol", { class: "samples spread" });
    const more = html("button", { type: "button", class: "quiet more" });
    const state = { filter: "all", isWhole: false };

    function render() {
      const wanted = verses.filter((one) => state.filter === "all" || one.isDiffering);
      const shown = state.isWhole ? wanted : wanted.slice(0, FIRST);
      page.replaceChildren(...shown.map((one) => one.node));
      more.hidden = shown.length === wanted.length;
      more.textContent = `Show ${wanted.length - shown.length} more`;
    }
    more.addEventListener("click", () => { state.isWhole = true; render(); });
    const differing = verses.filter((one) => one.isDiffering).length;
    const filter = differing > 0 && differing < verses.length && choice("filter", "Which samples",
      [["all", `all ${list.length}`], ["differing", `differing only, ${differing}`]], "all", (value) => { state.filter = value; render(); });
    render();
    return html("div", {},
      html("div", { class: "bar" }, filter),
      html("div", { class: "running-heads", "aria-hidden": "true" }, html("span", { class: "source" }, names.source), html("span", { class: "target" }, names.target)),
      page, more);
  }

  return { samplesView, message, words, differences, tidy };
})();
