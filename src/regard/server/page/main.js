// The page of `regard serve`: requests the lists of models and tasks, and shows one view at a time.
import * as address from "./address.js";
import * as api from "./api.js";
import { html, plural } from "./common/draw.js";
import { noticeView } from "./notice.js";
import { afterPause } from "./pace.js";

// The server lists the tasks. A task with a folder page/ has its own views (view.js), tasks that reply to conversations
// share one, and all others get a plain one. The module of a view is loaded when the view is first opened.
const CHAT_VIEW = { title: "Chat", load: async () => (await import("./chat/chat.js")).chatView };
const plainView = (task) => ({ title: task.name[0].toUpperCase() + task.name.slice(1).replaceAll("-", " "),
  load: async () => (await import("./labels/plain.js")).plainView(task) });

async function viewsOfTask(task) {
  if (task.view) return (await import(`./${task.name}/view.js`)).views;
  return task.chat ? { chat: CHAT_VIEW } : { [task.name]: plainView(task) };
}

// The views by name, each with the models that can be chosen in it: those for which `fits(model)` is true, if a view has
// this function. A view without models is left out.
async function viewsOf(tasks, models) {
  const views = {};
  const served = tasks.filter((one) => one.models.length);
  for (const [index, own] of (await Promise.all(served.map(viewsOfTask))).entries()) {
    for (const [name, view] of Object.entries(own)) {
      const fitting = models.filter((one) => served[index].models.includes(one.id) && (view.fits?.(one) ?? true));
      if (!fitting.length) continue;
      views[name] ??= { ...view, models: [] };
      views[name].models.push(...fitting);
    }
  }
  return views;
}

const main = document.getElementById("main");
const nav = document.getElementById("views");

// Values that all views share. `text`: the whole text; `sentence`: the one at the caret; `off`: the disabled heads.
function makeApp(views, limit) {
  const values = { view: "", model: views.translate?.models[0].id ?? "", text: "", sentence: "", off: [] };
  // The URL contains an inspected sentence, so that the user can share it, but no text that is only translated.
  const note = afterPause(250, () => {
    const { view } = address.read();
    if (view && view !== values.view) return; // the user is opening another view
    address.replace(values.view === "inside" ? { ...values, text: values.sentence } : { view: values.view });
  });
  return {
    limit, values,
    set(changes) { Object.assign(values, changes); note(); },
    go(view) { location.hash = view; },
  };
}

function showViews(app, views) {
  const known = Object.keys(views);
  const links = Object.fromEntries(known.map((name) => [name, html("a", { href: `#${name}` }, views[name].title)]));
  const made = {};
  nav.replaceChildren(...Object.values(links));

  async function show(name) {
    const before = app.values.view;
    app.values.view = name;
    made[name] ??= views[name].load().then((make) => make(app, views[name].models));
    const view = await made[name];
    if (app.values.view !== name) return; // the user has opened another view meanwhile
    if (before !== name) made[before]?.then((one) => one.close());
    for (const [one, link] of Object.entries(links)) {
      if (one === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${views[name].title} · Regard`;
    main.replaceChildren(view.node);
    view.open();
    app.set({}); // updates the URL
  }
  // Opens the view in the URL. Other fragments (links within the page) are left to the browser.
  function follow() {
    const { view, model, text, off } = address.read();
    if (view && !known.includes(view) && app.values.view) return;
    if (views.translate?.models.some(({ id }) => id === model)) app.values.model = model;
    if (text) Object.assign(app.values, { text, sentence: text, off });
    show(known.includes(view) ? view : known[0]);
  }
  addEventListener("hashchange", follow);
  follow();
}

async function start() {
  const notice = noticeView(start);
  try {
    const [models, tasks, limit] = await Promise.all([api.models(), api.tasks(), api.limit()]);
    document.getElementById("served").textContent = `${plural(models.length, "model")} served.`;
    const views = await viewsOf(tasks, models);
    if (Object.keys(views).length) showViews(makeApp(views, limit), views);
    else {
      const problem = models.length ? "This page cannot show what is served here: use the API." : "No model is served here.";
      main.replaceChildren(html("p", { class: "nothing" }, problem));
    }
  } catch (error) {
    main.replaceChildren(notice.node);
    notice.show(error);
  }
}
start();
