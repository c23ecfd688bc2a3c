// The served models: their displayed names, and a menu to choose one.
import { html, isNumber, large, number } from "./common/draw.js";
import { names } from "./common/frame.js";

const sides = ({ source, target }) => names({ source, target });

// The displayed name of a translation model: its languages and, if other models have the same languages, its id.
function nameByLanguages(model, all) {
  if (!(model.source && model.target)) return model.id;
  const pair = `${sides(model).source} to ${sides(model).target}`;
  const isAlone = all.filter(({ source, target }) => source === model.source && target === model.target).length === 1;
  return isAlone ? pair : `${pair} (${model.id})`;
}
// The model that translates in the other direction, if it is served.
const reverseOf = (model, all) => all.find(({ source, target }) =>
  source && source === model.target && target === model.source);

// A number and a noun, e.g. "1 question" or "17 questions".
const many = (count, thing) => `${large(count)} ${thing}${count === 1 ? "" : "s"}`;

function describe({ id, arch, parameters, scores, facts }) {
  const bleu = (scores?.test ?? scores?.valid)?.bleu;
  return [`run ${id}`, arch && `${arch}${parameters ? `, ${large(parameters)} parameters` : ""}`,
    facts?.questions !== undefined && `${many(facts.questions, "question")}, ${many(facts.answers, "answer")}`,
    isNumber(bleu) && `BLEU ${number(bleu, 1)}`].filter(Boolean).join(" · ");
}

// A menu of models (if there are several), and facts about the chosen one. `nameOf(model, all)`: the displayed name.
function modelChoice(legend, all, onChoose, nameOf = ({ id }) => id) {
  const about = html("span", { class: "facts" });
  const select = html("select", {}, all.map((model) => html("option", { value: model.id }, nameOf(model, all))));
  select.addEventListener("change", () => onChoose(all.find(({ id }) => id === select.value)));
  const node = html("div", { class: "bar models" },
    all.length > 1 && html("label", { class: "field" }, legend, select), about);
  function show(model) {
    select.value = model.id;
    about.textContent = describe(model);
  }
  return { node, show };
}

export { sides, reverseOf, modelChoice, nameByLanguages, many };
