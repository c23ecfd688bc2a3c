// The page of `regard serve`: asks what is served, and shows one view at a time.
import * as address from "./address.js";
import * as api from "./api.js";
import { html, plural } from "./common/draw.js";
import { noticeView } from "./notice.js";
import { afterPause } from "./pace.js";
import { translateView } from "./translate/translate.js";

// What a view needs comes with it: whoever only translates loads no more than that.
const VIEWS = {
  translate: { name: "Translate", kind: "translate", load: async () => translateView },
  inside: { name: "Look inside", kind: "translate", load: async () => (await import("./inside/inside.js")).insideView },
  chat: { name: "Chat", kind: "chat", load: async () => (await import("./chat/chat.js")).chatView },
  classify: { name: "Classify", kind: "classify", load: async () => (await import("./labels/classify.js")).classifyView },
  tag: { name: "Tag", kind: "tag", load: async () => (await import("./labels/tag.js")).tagView },
};
const main = document.getElementById("main");
const nav = document.getElementById("views");

// What the views share. `text` is all that was typed, `sentence` the one at the caret, `off` the heads that are off.
function makeApp(models, limit) {
  const first = models.find(({ kind }) => kind === "translate");
  const values = { view: "", model: first?.id ?? "", text: "", sentence: "", off: [] };
  // The address keeps what was looked at, so that it can be shown to others; what is only translated leaves no trace.
  const note = afterPause(250, () => {
    const { view } = address.read();
    if (view && view !== values.view) return; // the reader is on the way to another view
    address.replace(values.view === "inside" ? { ...values, text: values.sentence } : { view: values.view });
  });
  return {
    models, limit, values,
    set(changes) { Object.assign(values, changes); note(); },
    go(view) { location.hash = view; },
  };
}

function showViews(app) {
  const kinds = new Set(app.models.map(({ kind }) => kind));
  const known = Object.entries(VIEWS).filter(([, { kind }]) => kinds.has(kind)).map(([name]) => name);
  const links = Object.fromEntries(known.map((name) => [name, html("a", { href: `#${name}` }, VIEWS[name].name)]));
  const made = {};
  nav.replaceChildren(...Object.values(links));

  async function show(name) {
    const before = app.values.view;
    app.values.view = name;
    made[name] ??= VIEWS[name].load().then((make) => make(app));
    const view = await made[name];
    if (app.values.view !== name) return; // the reader has gone on
    if (before !== name) made[before]?.then((one) => one.close());
    for (const [one, link] of Object.entries(links)) {
      if (one === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${VIEWS[name].name} · Regard`;
    main.replaceChildren(view.node);
    view.open();
    app.set({}); // the address tells of what was brought along
  }
  // Goes where the address says. Some lead elsewhere on the page: those are the browser's business.
  function follow() {
    const { view, model, text, off } = address.read();
    if (view && !known.includes(view) && app.values.view) return;
    if (app.models.some(({ id, kind }) => id === model && kind === "translate")) app.values.model = model;
    if (text) Object.assign(app.values, { text, sentence: text, off });
    show(known.includes(view) ? view : known[0]);
  }
  addEventListener("hashchange", follow);
  follow();
}

async function start() {
  const notice = noticeView(start);
  try {
    const [models, limit] = await Promise.all([api.models(), api.limit()]);
    document.getElementById("served").textContent = `${plural(models.length, "model")} served.`;
    if (models.length) showViews(makeApp(models, limit));
    else main.replaceChildren(html("p", { class: "nothing" }, "No model is served here."));
  } catch (error) {
    main.replaceChildren(notice.node);
    notice.show(error);
  }
}
start();
