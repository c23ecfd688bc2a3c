// Switches for heads, on the page of a server, which translates again without the heads. `switches` is
// { isOff(attention, head), flip(attention, head) }; without it no switch is shown.
import { AVERAGE } from "../common/attention.js";
import { ALL } from "./compare.js";
import { html } from "../common/draw.js";

// A switch for the grid of all heads.
function small(switches, { name }, head) {
  const node = html("button", { type: "button", role: "switch", class: "switch", "data-switch": `${name}:${head}`,
    "aria-checked": String(!switches.isOff(name, head)),
    "aria-label": `${name}, head ${head}` }, html("i", {}));
  node.addEventListener("click", () => switches.flip(name, head));
  return node;
}

// A button for the head that look.js shows; hidden if it shows several heads.
function large(switches, maps, picked) {
  const node = html("button", { type: "button", class: "quiet", "data-switch": "large" });
  function show({ kind, layer, head }) {
    node.hidden = layer === ALL || head === AVERAGE;
    if (node.hidden) return;
    const { name } = maps.find((map) => map.kind === kind && map.layer === layer);
    node.textContent = `Switch head ${head} ${switches.isOff(name, head) ? "on" : "off"}`;
    node.onclick = () => switches.flip(name, head);
  }
  picked.listen(show);
  show(picked.values);
  return node;
}

export { small, large };
