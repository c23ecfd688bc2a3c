// Words and their labels; for a chosen word, the probabilities of its labels and the influence of the other words.
import { html, figure } from "../common/draw.js";
import { probabilityBars } from "../common/shading.js";

// Shades each word by how much the log-probability of the chosen word's label falls without it.
function shade(buttons, chosen, row) {
  const strongest = Math.max(0, ...row);
  buttons.forEach((button, place) => {
    button.setAttribute("aria-pressed", String(place === chosen));
    const word = button.firstChild;
    word.style.setProperty("--strength", strongest > 0 ? (Math.max(0, row[place]) / strongest).toFixed(3) : "0");
    word.title = row.length ? `without it, the log-probability of the label falls by ${figure(row[place])}` : "";
  });
}

// At first, the word whose label has the lowest probability is chosen.
function taggedView({ tokens = [], tags = [], probabilities = [], top_labels = [], influence = [] }) {
  if (!tokens.length) return null;
  const detail = html("div", { class: "tag-detail", "aria-live": "polite" });
  const buttons = tokens.map((token, place) => html("button", { type: "button", class: "tagged-word" },
    html("span", { class: "shaded" }, token), html("span", { class: "tag" }, tags[place])));
  const choose = (place) => {
    shade(buttons, place, influence[place] ?? []);
    detail.replaceChildren(html("h3", {}, tokens[place]),
      probabilityBars({ probabilities: top_labels[place] ?? {}, labels: [tags[place]] }));
  };
  buttons.forEach((button, place) => button.addEventListener("click", () => choose(place)));
  choose(Math.max(0, probabilities.indexOf(Math.min(...probabilities))));
  return html("div", {}, html("div", { class: "tagged-words", dir: "auto" }, buttons), detail);
}

// The spans as text, e.g. NP: the old dog; VP: sees.
const spansOf = ({ spans = [] }) => spans.map(({ type, text }) => `${type || "span"}: ${text}`).join("; ");

export { taggedView, spansOf };
