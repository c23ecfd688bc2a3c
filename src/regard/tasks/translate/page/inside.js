// The inspection view of a sentence. The user can disable heads; the sentence is then also translated without them.
import * as address from "../address.js";
import * as api from "../api.js";
import { AVERAGE } from "../common/attention.js";
import { ALL } from "../inspect/compare.js";
import { copyButton } from "../copying.js";
import { html } from "../common/draw.js";
import { editor } from "../editor.js";
import { examplesOf } from "../examples.js";
import { inspectionView } from "../inspect/inspection.js";
import { memory } from "../memory.js";
import { modelChoice, nameByLanguages } from "../models.js";
import { noticeView } from "../notice.js";
import { afterPause, newest } from "../pace.js";
import { slipView } from "./slip.js";
import { welcomeView } from "../welcome.js";

const PAUSE = 350; // milliseconds
const MOST_KNOWN = 20; // inspections; few, because they are large
const WELCOME = "Write a sentence to see the attention weights of its translation. Then switch off attention heads "
  + "and see how the translation changes.";

const isSame = ([attention, head]) => ([other, number]) => attention === other && head === number;

// The choices of the user (layer, head, unit) that are also possible in another inspection.
function kept(picked, { attention: maps = [] }) {
  const { kind, layer, head, unit } = picked?.values ?? {};
  const layers = maps.filter((map) => map.kind === kind && (layer === ALL || map.layer === layer));
  const isThere = layers.length > 0 && layers.every((map) => head === AVERAGE || head in map.weights);
  return { ...(unit && { unit }), ...(isThere && { kind, layer, head }) };
}

function insideView(app, all) {
  const [asking, whole] = [newest(), memory(MOST_KNOWN)]; // whole: inspections with all heads
  const soon = afterPause(PAUSE, () => request());
  let [picked, isDeep] = [null, false];

  const model = () => all.find(({ id }) => id === app.values.model) ?? all[0];
  const choice = modelChoice("Direction", all, (chosen) => { app.set({ model: chosen.id, off: [] }); begin(); },
    nameByLanguages);
  const entry = editor({ label: "Sentence to inspect", placeholder: "Type a sentence", onInput: rewrite });
  const link = copyButton("Copy link", () => new URL(address.make({ view: "inside", model: model().id,
    text: app.values.sentence, off: app.values.off }), location.href).href);
  const notice = noticeView(() => request());
  const welcome = welcomeView(WELCOME, (text) => { app.set({ sentence: text, text }); begin(); });
  const result = html("div", { class: "result" });
  const slip = slipView({ flip, onReset: () => { app.set({ off: [] }); request(); } });
  const further = html("button", { type: "button", class: "quiet" }, "Compute attributions (a few seconds)");
  further.addEventListener("click", () => { isDeep = true; further.disabled = true; request(); });
  const node = html("div", { class: "view inside" }, choice.node,
    html("div", { class: "entry spread" },
      html("span", { class: "tag source", "aria-hidden": "true" }, "Sentence"), entry.node, link.node, link.said),
    notice.node, welcome.node, result, slip.node);

  // ---- drawing
  // While the page is drawn again, its height is kept, so that nothing moves, and the focused switch keeps the focus.
  function draw(data) {
    const { switch: held } = document.activeElement?.dataset ?? {};
    const made = inspectionView(data, { begin: kept(picked, data), switches: { isOff, flip }, further });
    ({ picked } = made);
    further.disabled = false;
    result.style.minHeight = `${result.offsetHeight}px`;
    result.replaceChildren(...made.nodes);
    if (held) result.querySelector(`[data-switch="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
    requestAnimationFrame(() => requestAnimationFrame(() => { result.style.minHeight = ""; }));
  }
  function changed() {
    isDeep = false;
    asking.stop();
    notice.clear();
    welcome.node.hidden = Boolean(app.values.sentence);
    link.node.disabled = !app.values.sentence;
    if (app.values.sentence) return;
    result.replaceChildren();
    slip.hide();
  }

  // Replaces the sentence in the text that contains it by the changed sentence.
  function rewrite() {
    const [{ text, sentence }, now] = [app.values, entry.text().trim()];
    const at = sentence ? text.indexOf(sentence) : -1;
    app.set({ sentence: now, text: at < 0 ? (text.trim() ? text : now)
      : text.slice(0, at) + now + text.slice(at + sentence.length) });
    changed();
    soon();
  }

  // ---- requests
  async function lookAtWhole(chosen, text, signal) {
    const known = whole.get(chosen, text);
    const isWanted = isDeep && !app.values.off.length;
    if (known && !(isWanted && !known.attribution)) return known;
    const found = await api.inspect(chosen.id, text, { quick: !isWanted, signal });
    whole.set(chosen, text, found);
    return found;
  }
  // Without some heads, the translation may be empty, which is an error in the API; here it is a result.
  async function lookWithout(chosen, text, off, signal) {
    if (!off.length) return null;
    try {
      return await api.inspect(chosen.id, text, { off, quick: !isDeep, signal });
    } catch (error) {
      if (error.code === "empty_translation") return { translation: { text: "", log_prob: null } };
      throw error;
    }
  }
  async function request() {
    const { sentence: text, off } = app.values;
    if (!text) return;
    const [signal, chosen] = [asking.begin(), model()];
    node.setAttribute("aria-busy", true);
    try {
      const [before, after] = await Promise.all(
        [lookAtWhole(chosen, text, signal), lookWithout(chosen, text, off, signal)]);
      notice.clear();
      draw(after?.source ? after : before);
      if (after) slip.show(off, before.translation, after.translation, chosen.target);
      else slip.hide();
    } catch (error) {
      notice.show(error);
      further.disabled = false;
      slip.wait(off); // shows the button that enables all heads again
    }
    if (!signal.aborted) node.setAttribute("aria-busy", false);
  }

  // ---- switches
  const isOff = (attention, head) => app.values.off.some(isSame([attention, head]));
  function flip(attention, head) {
    const { off } = app.values;
    const one = [attention, head];
    app.set({ off: isOff(attention, head) ? off.filter((other) => !isSame(one)(other)) : [...off, one] });
    // The switch changes at once, before the new translation arrives.
    result.querySelector(`[data-switch="${CSS.escape(`${attention}:${head}`)}"]`)
      ?.setAttribute("aria-checked", !isOff(attention, head));
    slip.wait(app.values.off);
    request();
  }

  function begin() {
    choice.show(model());
    entry.set(app.values.sentence);
    entry.field.lang = model().source;
    welcome.show(examplesOf(model()), model().source);
    changed();
    request();
  }
  function open() {
    begin();
    if (!app.values.sentence) entry.field.focus({ preventScroll: true });
  }
  return { node, open, close: asking.stop };
}

export { insideView };
