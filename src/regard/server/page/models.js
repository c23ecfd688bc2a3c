// The served models: their names for people, and the choice among them.
import { html, isNumber, large, number } from "./common/draw.js";
import { names } from "./common/frame.js";

const sides = ({ source, target }) => names({ source, target });

// A name that tells a model from the others: its languages, or if they are not enough its own name.
function nameOf(model, all) {
  if (model.kind !== "translate" || !(model.source && model.target)) return model.id;
  const pair = `${sides(model).source} to ${sides(model).target}`;
  const isAlone = all.filter(({ source, target }) => source === model.source && target === model.target).length === 1;
  return isAlone ? pair : `${pair} (${model.id})`;
}
// The model that translates back, if it is served.
const reverseOf = (model, all) => all.find(({ kind, source, target }) =>
  kind === "translate" && source && source === model.target && target === model.source);

// "1 question", "17 questions".
const many = (count, thing) => `${large(count)} ${thing}${count === 1 ? "" : "s"}`;

function facts({ id, arch, parameters, scores, knowledge }) {
  const bleu = (scores?.test ?? scores?.valid)?.bleu;
  return [`run ${id}`, arch && `${arch}${parameters ? `, ${large(parameters)} parameters` : ""}`,
    knowledge && `${many(knowledge.questions, "question")}, ${many(knowledge.answers, "answer")}`,
    isNumber(bleu) && `BLEU ${number(bleu, 1)}`].filter(Boolean).join(" · ");
}

// A menu of models, where there are several; and what is known of the chosen one.
function modelChoice(legend, all, onChoose) {
  const about = html("span", { class: "facts" });
  const select = html("select", {}, all.map((model) => html("option", { value: model.id }, nameOf(model, all))));
  select.addEventListener("change", () => onChoose(all.find(({ id }) => id === select.value)));
  const node = html("div", { class: "bar models" },
    all.length > 1 && html("label", { class: "field" }, legend, select), about);
  function show(model) {
    select.value = model.id;
    about.textContent = facts(model);
  }
  return { node, show };
}

export { sides, reverseOf, modelChoice, many };
