// The panel at the bottom of the window: the disabled heads, and the translations with all heads and without these.
import { differences, marked, words } from "../common/differences.js";
import { figure, html, isNumber, plural } from "../common/draw.js";

// `flip(attention, head)` enables a head again; `onReset()` enables all heads.
function slipView({ flip, onReset }) {
  const chips = html("div", { class: "chips" });
  const reset = html("button", { type: "button", class: "quiet" }, "Switch all on");
  const pages = html("div", { class: "slip-pages" });
  const says = html("p", { class: "slip-says", role: "status" });
  const node = html("div", { class: "slip", role: "region", "aria-label": "Changes caused by the disabled heads",
    hidden: true },
    html("div", { class: "slip-head" }, html("span", { class: "tag" }, "Switched off"), chips, reset), pages, says);
  reset.addEventListener("click", onReset);

  function chip([attention, head]) {
    const name = `${attention} head ${head}`;
    const made = html("button", { type: "button", class: "chip", "aria-label": `Switch on ${name}` }, name,
      html("span", { "aria-hidden": "true" }, "×"));
    made.addEventListener("click", () => flip(attention, head));
    return made;
  }
  const page = (name, kind, text, language) => html("div", { class: `slip-page ${kind}` },
    html("span", { class: "tag" }, name), html("p", { class: "running", lang: language, dir: "auto" }, text));
  function sum(isGone, isOther, before, after) {
    const count = Math.max(...[isGone, isOther].map((list) => list.filter(Boolean).length));
    const said = count ? `${plural(count, "word")} changed` : "The translation stays the same";
    const [one, other] = [before.log_prob, after.log_prob];
    return `${after.text ? said : "The output is empty now"}.${isNumber(one) && isNumber(other)
      ? ` Log-probability ${figure(one)} before, ${figure(other)} now.` : ""}`;
  }

  // Shows the disabled heads until the new translation arrives.
  function wait(off) {
    if (!off.length) return;
    node.hidden = false;
    node.classList.add("waiting");
    chips.replaceChildren(...off.map(chip));
  }
  function show(off, before, after, language) {
    wait(off);
    node.classList.remove("waiting");
    const [old, now] = [before, after].map(({ text }) => words(text, language));
    const [isGone, isOther] = differences(old, now);
    pages.replaceChildren(page("all heads", "before", marked(old, isGone), language),
      page(`without ${plural(off.length, "head")}`, "after",
        after.text ? marked(now, isOther) : html("em", {}, "nothing"), language));
    says.textContent = sum(isGone, isOther, before, after);
  }
  const hide = () => { node.hidden = true; };
  return { node, wait, show, hide };
}

export { slipView };
