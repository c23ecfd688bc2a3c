// The chat view: a conversation, which is stored only in this browser tab.
import * as api from "../api.js";
import { html } from "../common/draw.js";
import { editor } from "../editor.js";
import { many, modelChoice } from "../models.js";
import { noticeView } from "../notice.js";
import { newest } from "../pace.js";
import { welcomeView } from "../welcome.js";

const WRITES = "Write a message and the model replies. It knows only this conversation.";
const welcomeTo = ({ facts }) => facts?.questions !== undefined
  ? `Ask a question. The answer comes from a knowledge base of ${many(facts.questions, "question")}. Other `
      + "questions are not answered."
  : WRITES;

function chatView(app, all) {
  const asking = newest();
  let [model, messages, isTalking] = [all[0], [], false];

  const choice = modelChoice("Partner", all, (chosen) => { model = chosen; renew(); });
  const dialogue = html("div", { class: "dialogue", role: "log", "aria-label": "Conversation" });
  const notice = noticeView(() => answer());
  const entry = editor({ label: "Your message", placeholder: "Write a message", onInput: ready });
  const send = html("button", { class: "quiet send" }, "Send");
  const stop = html("button", { type: "button", class: "quiet", hidden: true }, "Stop");
  const anew = html("button", { type: "button", class: "quiet" }, "New conversation");
  const form = html("form", { class: "entry spread" }, entry.node, anew, stop, send);
  const welcome = welcomeView(WRITES, say);
  const node = html("div", { class: "view chat" }, html("h1", { class: "unseen" }, "Chat"), choice.node, welcome.node,
    dialogue, notice.node, form);

  function ready() {
    send.disabled = isTalking || !entry.text().trim();
    anew.hidden = !messages.length;
    welcome.node.hidden = messages.length > 0;
    stop.hidden = !isTalking;
    send.hidden = isTalking;
  }
  function turn(side, name, text) {
    const said = html("p", { class: "running", dir: "auto" }, text);
    dialogue.append(html("div", { class: `turn ${side}` }, html("span", { class: "tag" }, name), said));
    said.scrollIntoView({ block: "nearest" });
    return said;
  }
  function say(text) {
    messages.push({ role: "user", content: text });
    turn("source", "You", text);
    entry.set("");
    answer();
  }
  // Requests the reply to the last message and shows it while it arrives. The part before "Stop" is kept.
  async function answer() {
    const said = turn("target", model.id, "");
    const signal = asking.begin();
    isTalking = true;
    ready();
    dialogue.setAttribute("aria-busy", true);
    try {
      for await (const piece of api.chat(model.id, messages, { signal })) {
        said.textContent += piece;
        said.scrollIntoView({ block: "nearest" });
      }
    } catch (error) {
      notice.show(error);
    }
    isTalking = false;
    dialogue.setAttribute("aria-busy", false);
    if (!said.isConnected) return ready(); // the user has started a new conversation
    if (said.textContent) messages.push({ role: "assistant", content: said.textContent });
    else said.parentElement.remove();
    ready();
  }
  function renew() {
    asking.stop();
    messages = [];
    dialogue.replaceChildren();
    notice.clear();
    choice.show(model);
    welcome.say(welcomeTo(model));
    welcome.show(model.examples, model.source);
    ready();
    entry.field.focus();
  }
  function submit(event) {
    event?.preventDefault();
    if (!isTalking && entry.text().trim()) say(entry.text().trim());
  }
  form.addEventListener("submit", submit);
  entry.field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  stop.addEventListener("click", () => { asking.stop(); entry.field.focus(); });
  anew.addEventListener("click", renew);

  function open() {
    if (!messages.length) renew();
    entry.field.focus();
  }
  return { node, open, close: () => {} };
}

export { chatView };
