// The frame of every page: sections, names of the two languages, run, date and version.
import { html, languageName } from "./draw.js";


function names(languages) {
  const nameOf = (side, otherwise) => languageName(languages?.[side]) || otherwise;
  return { source: nameOf("source", "Source"), target: nameOf("target", "Target") };
}

// Heading and explanation in the margin, content beside them; without content there is no section.
function section(id, title, message, ...content) {
  if (!content.some(Boolean)) return null;
  const said = [message].flat().filter(Boolean);
  return html("section", { "aria-labelledby": id },
    html("div", { class: "margin" }, html("h2", { id }, title),
      said.map((part) => (part instanceof Node ? part : html("p", {}, part)))),
    html("div", { class: "content" }, content));
}

function sign({ run, created, version }) {
  const date = new Date(created ?? NaN);
  const when = Number.isNaN(date.getTime()) ? null : html("time", { datetime: created },
    date.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" }));
  document.getElementById("run").append(...[run && html("span", {}, `run ${run}`), when].filter(Boolean));
  document.getElementById("colophon").append(
    html("p", {}, "A bilingual book prints its translation ", html("em", { lang: "fr" }, "en regard"),
      ", on the facing page."),
    html("p", { class: "notes" }, "Made by Regard", version && ` ${version}`,
      ". This file is self-contained and loads nothing from the network."));
}

// On paper, all folded parts are open.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));

export { names, section, sign };
