// The roles of heads that `regard heads` found over many sentences.
import { html, figure, number, isNumber, plural, table } from "../common/draw.js";
import * as look from "./look.js";


const percent = (value) => (isNumber(value) ? `${number(100 * value)} %` : "–");

function message(heads) {
  const busy = heads.filter(({ role }) => role).length;
  return `${busy} of ${plural(heads.length, "head")} have a role: over many sentences, their largest weight is `
    + "on the token that the role predicts clearly more often than by chance or by a fixed distance.";
}

function rolesView(heads, maps, picked) {
  const busy = heads.filter(({ role }) => role);
  if (!busy.length) return null;
  function button(name, head) {
    const map = maps.find((one) => one.name === name);
    if (!map) return `${name}, head ${head}`;
    const node = html("button", { type: "button", class: "link-button" }, `${name}, head ${head}`);
    node.addEventListener("click", () => look.lead(picked, map, head));
    return node;
  }
  const rows = busy.map(({ name, head, role, of, share, baseline, confidence, ablation }) => [
    button(name, head), [role, html("small", {}, ` ${of}`)], percent(share), percent(baseline), percent(confidence),
    isNumber(ablation) ? figure(ablation) : "–"]);
  return html("div", { class: "scroll-box open roles" },
    table(["head", "role", "hits", "by chance", "confidence", "loss increase without it"], rows, "numbers"));
}

export { rolesView, message };
