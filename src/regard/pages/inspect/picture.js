// One picture and its captions: for each word, where the model looked; other captions that the search found.
import { figure, html, isNumber, languageName, plural } from "../common/draw.js";
import * as frame from "../common/frame.js";
import { lookingView } from "../common/looking.js";

const data = JSON.parse(document.getElementById("data").textContent);
const looks = data.looks ?? [];
const [best] = looks;

function deck() {
  const parts = [best?.language && `in ${languageName(best.language)}`, data.model?.arch && `by ${data.model.arch}`,
    isNumber(best?.score) && `with the score ${figure(best.score)}`].filter(Boolean);
  return `A caption ${parts.join(", ")}.`;
}

const host = html("div", {});
const show = (look) => host.replaceChildren(lookingView(data.picture, look));

function captionList() {
  const buttons = looks.map((look, index) => {
    const button = html("button", { type: "button", "aria-pressed": String(index === 0) },
      html("span", { lang: look.language || null, dir: "auto" }, look.text),
      isNumber(look.score) && html("small", {}, figure(look.score)));
    button.addEventListener("click", () => {
      buttons.forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
      show(look);
      host.scrollIntoView({ block: "nearest" });
    });
    return button;
  });
  return html("ol", { class: "captions" }, buttons.map((button) => html("li", {}, button)));
}

if (best) show(best);
const rows = best?.maps?.[0];
const grid = rows
  ? `The model reads the picture as ${rows.length} x ${rows[0].length} patches. For each word, the picture is bright where `
    + "the word has large attention weights. The weights of a word are divided by the largest one."
  : "This model has no attention over the picture.";
frame.sign(data);
document.getElementById("view").replaceChildren(...[
  html("div", { class: "title-page" }, html("h1", { lang: best?.language || null }, data.title || "A picture"),
    best && html("p", { class: "deck" }, deck())),
  best && frame.section("looking", "Where it looked", grid, host),
  looks.length > 1 && frame.section("captions", "Captions",
    `${plural(looks.length, "caption")}, best first, with their model scores. Choose one to see where the model looks.`,
    captionList()),
].filter(Boolean));
