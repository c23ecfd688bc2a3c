// Requests to the API of the server. URLs are relative, so that the page also works under a path prefix of a proxy.
const KEY = "regard-key";

// An error response. `status` 0: the server did not answer. `wait`: seconds after which to try again, if the
// server says so. `code`: the name of the error, if it has one (errors.py).
class Refusal extends Error {
  constructor(message, status, { wait = null, code = null } = {}) {
    super(message);
    Object.assign(this, { status, wait, code });
  }
}
const isAborted = (error) => error?.name === "AbortError";

// The API key is stored until the tab is closed.
const keyOf = () => { try { return sessionStorage.getItem(KEY); } catch { return null; } };
const useKey = (key) => { try { sessionStorage.setItem(KEY, key); } catch { /* storage is forbidden */ } };

async function refusal(response) {
  const wait = Number(response.headers.get("Retry-After")) || null;
  let said = null, code = null;
  try {
    const { error, detail } = await response.json();
    said = error?.message ?? error ?? detail;
    code = error?.code ?? null;
  } catch { /* not JSON, e.g. an error page of a proxy */ }
  const message = typeof said === "string" && said ? said : `the server answered with status ${response.status}`;
  return new Refusal(message, response.status, { wait, code });
}

async function ask(path, body, signal) {
  const headers = { ...(body && { "Content-Type": "application/json" }),
    ...(keyOf() && { Authorization: `Bearer ${keyOf()}` }) };
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal,
      credentials: "same-origin", referrerPolicy: "no-referrer" });
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new Refusal("the server cannot be reached", 0);
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

// The parsed JSON data of server-sent events, until [DONE].
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value.replaceAll("\r", "")).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim());
      if (!data.length) continue;
      if (data.join("") === "[DONE]") return;
      const event = JSON.parse(data.join("\n"));
      if (event.error) throw new Refusal(event.error.message ?? String(event.error), 200);
      yield event;
    }
  }
}

async function models() {
  const { data } = await (await ask("v1/models")).json();
  return data;
}
async function tasks() {
  const { data } = await (await ask("v1/tasks")).json();
  return data;
}
// The results of a task, one per text.
async function answer(task, body, { signal } = {}) {
  const { results } = await (await ask(`v1/${task}`, body, signal)).json();
  return results;
}
// Maximum number of characters of a request; Infinity if unknown.
async function limit() {
  try {
    const { charLimit } = await (await ask("frontend/settings")).json();
    return charLimit > 0 ? charLimit : Infinity;
  } catch {
    return Infinity;
  }
}

// Translations of texts, with token scores and word alignments. A model without cross-attention refuses to align words:
// then the request is repeated without alignment.
const cannotAlign = new Set();
async function translate(model, texts, { nbest = 1, signal } = {}) {
  const align = !cannotAlign.has(model);
  try {
    return await answer("translate", { model, q: texts, nbest, align, scores: true }, { signal });
  } catch (error) {
    if (!align || error.code !== "no_cross_attention") throw error;
    cannotAlign.add(model);
    return translate(model, texts, { nbest, signal });
  }
}

async function inspect(model, text, { off = [], quick = true, signal } = {}) {
  return (await ask("v1/inspect", { model, text, disabled_heads: off, skip_slow: quick }, signal)).json();
}
async function explain(task, model, text, { signal } = {}) {
  const [result] = await answer(task, { model, q: text, explain: true }, { signal });
  return result;
}
// Yields the reply to `messages` (in OpenAI's format) in pieces.
async function* chat(model, messages, { signal } = {}) {
  const response = await ask("v1/chat/completions", { model, messages, stream: true }, signal);
  for await (const { choices } of events(response)) {
    const piece = choices?.[0]?.delta?.content;
    if (piece) yield piece;
  }
}

export { Refusal, isAborted, useKey, models, tasks, limit, answer, explain, translate, inspect, chat };
