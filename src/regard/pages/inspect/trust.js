// The most faithful attribution method, if faithfulness was measured over many sentences.
import { html, figure, plural, table as tableOf } from "../common/draw.js";


// The method with the best deletion score: it is in the first row.
const first = (methods, faithfulness) => (faithfulness?.rows ?? [])
  .map((row) => methods.find(({ name }) => name === row.name)).find(Boolean);

const range = (value) => (value ? `${figure(value.mean)} (${figure(value.low)} to ${figure(value.high)})` : "–");

function table(methods, { rows, sentences, verdict }, trusted) {
  const titleOf = (name) => methods.find((one) => one.name === name)?.title ?? name;
  const headings = ["method", "deletion, higher is better", "sufficiency, lower is better", "finds the aligned word"];
  return html("div", { class: "trust" },
    html("p", {}, html("strong", {}, `Most faithful: ${trusted.title}. `),
      `Over ${plural(sentences, "sentence")}, deleting the words that it ranks highest lowers the probability most. `,
      verdict),
    html("details", {}, html("summary", {}, "Faithfulness of all methods"),
      html("div", { class: "scroll-box open" }, tableOf(headings, rows.map((row) =>
        [titleOf(row.name), range(row.deletion), range(row.sufficiency), range(row.precision)]), "numbers"))));
}

export { first, table };
