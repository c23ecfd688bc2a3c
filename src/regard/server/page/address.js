// The state of the page in the fragment of its URL (after the #): view, model, sentence, disabled heads. Browsers do
// not send the fragment to the server.
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
// Changes the URL without a new history entry: the back button leads to the previous view, not to earlier text.
const replace = (values) => history.replaceState(null, "", make(values));

export { read, make, replace };
