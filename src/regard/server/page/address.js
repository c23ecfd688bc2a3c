// The address of what is seen, after the # of the page's own: a view, and in it a model, a sentence, heads that are
// off. Browsers never send that part to a server.
const SEPARATOR = "~";

function read() {
  const [view, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  const fields = new URLSearchParams(query);
  const off = (fields.get("off") ?? "").split(SEPARATOR).map((one) => one.match(/^([\w.]+):(\d+)$/)).filter(Boolean)
    .map(([, attention, head]) => [attention, Number(head)]);
  return { view, model: fields.get("model") ?? "", text: fields.get("text") ?? "", off };
}
function make({ view, model, text, off }) {
  const fields = new URLSearchParams();
  if (model) fields.set("model", model);
  if (text) fields.set("text", text);
  if (off?.length) fields.set("off", off.map(([attention, head]) => `${attention}:${head}`).join(SEPARATOR));
  const query = fields.toString();
  return `#${view}${query ? `?${query}` : ""}`;
}
// The same page under another address; going back leads to the view before, not through every letter typed.
const replace = (values) => history.replaceState(null, "", make(values));

export { read, make, replace };
