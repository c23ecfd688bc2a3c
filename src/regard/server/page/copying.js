// A button that copies a text to the clipboard.
import { html } from "./common/draw.js";

const SHOWN = 1600; // milliseconds that the result is displayed

async function put(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Without HTTPS, browsers have no `navigator.clipboard`.
  const field = html("textarea", { class: "unseen", "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  if (!isDone) throw new Error("copying is not allowed");
}

function copyButton(name, textOf) {
  const node = html("button", { type: "button", class: "quiet" }, name);
  const said = html("span", { class: "unseen", role: "status" });
  node.addEventListener("click", async () => {
    let result = "Copied";
    try { await put(textOf()); } catch { result = "Not allowed"; }
    node.textContent = said.textContent = result;
    node.focus();
    setTimeout(() => { node.textContent = name; said.textContent = ""; }, SHOWN);
  });
  return { node, said };
}

export { copyButton };
