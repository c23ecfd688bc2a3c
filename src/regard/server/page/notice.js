// An error message, with a way to continue: a button, a countdown, or a field for the API key.
import { isAborted, useKey } from "./api.js";
import { html } from "./common/draw.js";

const sentenceCase = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

// `again()` repeats the request: when the user presses the button, or after the time that the server gave.
function noticeView(again) {
  const node = html("div", { class: "notice", role: "status", hidden: true });
  let timer = null;

  function clear() {
    clearInterval(timer);
    node.hidden = true;
    node.replaceChildren();
  }
  function put(...content) {
    clear();
    node.replaceChildren(...content);
    node.hidden = false;
  }
  function retry() {
    clear();
    again();
  }
  function button(name) {
    const made = html("button", { type: "button", class: "quiet" }, name);
    made.addEventListener("click", retry);
    return made;
  }
  // The remaining seconds are hidden from screen readers, which would read out each change.
  function countDown(message, seconds) {
    const left = html("span", { "aria-hidden": "true" });
    let rest = Math.ceil(seconds);
    const tell = () => { left.textContent = ` Trying again in ${rest} s.`; };
    put(html("p", {}, message, left));
    tell();
    timer = setInterval(() => (--rest > 0 ? tell() : retry()), 1000);
  }
  function askForKey(message) {
    const field = html("input", { type: "password", autocomplete: "off", "aria-label": "API key",
      placeholder: "API key" });
    const form = html("form", { class: "key-form" }, html("p", {}, message), field,
      html("button", { class: "quiet" }, "Use it"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      useKey(field.value.trim());
      retry();
    });
    put(form);
  }
  function show(error) {
    if (isAborted(error)) return;
    const message = sentenceCase(error.message);
    if (error.status === undefined) console.error(error); // a bug in the page, not an error response
    if (error.status === 429 || (error.status === 503 && error.wait)) {
      countDown(error.status === 429 ? "The server is busy." : message, error.wait ?? 2);
    } else if (error.status === 401 || error.status === 403) askForKey(message);
    else if (error.status === undefined || error.status === 0 || error.status >= 500) {
      put(html("p", {}, message), button("Try again"));
    } else put(html("p", {}, message));
  }
  const tell = (message) => put(html("p", {}, sentenceCase(message)));
  return { node, show, tell, clear };
}

export { noticeView };
