// Decoding step by step: attention to the source, probabilities of the next token, and the tokens so far.
import { html, number } from "../common/draw.js";
import * as running from "../common/running.js";
import * as weights from "../common/weights.js";

const PACE = 1100;
const SHOWN = 8;
const BUTTONS = { first: ["«", "First step"], back: ["‹", "Previous step"], play: ["Play", "Play"],
  on: ["›", "Next step"], last: ["»", "Last step"] };

// For each target token: its probability and rank, all probabilities known at its position, and the best in order.
function stepsOf({ tokens, probability, best, written }, target) {
  return written.map(({ probability: own, rank }, row) => {
    const shares = new Map(tokens.map((token, column) => [token, probability[row][column]]));
    return { token: target.tokens[row], probability: own, rank, shares: shares.set(target.tokens[row], own),
      top: best[row].map((column) => [tokens[column], probability[row][column]]) };
  });
}
// Weights of target tokens on source words, averaged over all heads; null if there are none.
function lookedAt(book, maps) {
  const crosses = maps.filter((map) => map.kind === "cross").flatMap((map) => map.weights);
  if (!crosses.length) return null;
  return book.merge(weights.average(crosses), book.seen("target", "tokens"), book.seen("source", "words"));
}
const percent = (share) => (share < 0.001 ? "under 0.1 %" : `${number(100 * share, share < 0.0995 ? 1 : 0)} %`);

function bars({ token: taken, probability: own, top }, label) {
  const likeliest = top.slice(0, SHOWN);
  const isThere = likeliest.some(([token]) => token === taken);
  const rows = isThere ? likeliest : [...likeliest.slice(0, -1), [taken, own]];
  return rows.map(([token, probability]) => {
    const bar = html("i", {});
    bar.style.setProperty("--share", probability.toFixed(4));
    return html("div", { class: token === taken ? "guess taken" : "guess" },
      html("span", { class: "guess-token" }, label(token)), html("span", { class: "guess-bar" }, bar),
      html("span", { class: "guess-share" }, percent(probability)));
  });
}
function comment({ token, rank, probability }, index, label, isGiven) {
  const name = `Step ${index + 1}: “${label(token)}” is`;
  if (rank === 1) return `${name} the most probable token, with ${percent(probability)}.`;
  const why = isGiven ? "is in the given translation" : "was chosen for the score of the whole translation";
  return `${name} the token of rank ${rank}, with ${percent(probability)}; it ${why}.`;
}

// Buttons and a slider that lead through `count` steps; `show(index)` draws one.
function player(count, show) {
  const buttons = Object.fromEntries(Object.entries(BUTTONS).map(([name, [sign, label]]) =>
    [name, html("button", { type: "button", class: `quiet ${name}`, "aria-label": label, title: label }, sign)]));
  const slider = html("input", { type: "range", min: 1, max: count, value: 1, "aria-label": "Step" });
  const place = html("span", { class: "place" });
  let [here, timer] = [0, null];

  function move(index) {
    here = Math.min(count - 1, Math.max(0, index));
    slider.value = here + 1;
    place.textContent = `${here + 1} of ${count}`;
    buttons.first.disabled = buttons.back.disabled = here === 0;
    buttons.on.disabled = buttons.last.disabled = here === count - 1;
    show(here);
  }
  function play(isOn) {
    clearInterval(timer);
    timer = isOn ? setInterval(() => (here < count - 1 ? move(here + 1) : play(false)), PACE) : null;
    buttons.play.textContent = buttons.play.ariaLabel = buttons.play.title = isOn ? "Pause" : "Play";
  }
  function start() {
    if (!timer && here === count - 1) move(0);
    play(!timer);
  }
  const steps = { first: () => 0, back: () => here - 1, on: () => here + 1, last: () => count - 1 };
  for (const [name, to] of Object.entries(steps)) {
    buttons[name].addEventListener("click", () => { play(false); move(to()); });
  }
  buttons.play.addEventListener("click", start);
  slider.addEventListener("input", () => { play(false); move(Number(slider.value) - 1); });
  move(0);
  return html("div", { class: "bar player" }, Object.values(buttons), slider, place);
}

function writingView(book, steps, looked, languages, isGiven) {
  if (!steps?.length) return null;
  const source = running.text("source", book.pieces("source", "words"), languages.source);
  const target = running.text("target", book.pieces("target", "tokens"), languages.target);
  const [list, says] = [html("div", { class: "guesses" }), html("p", { class: "says finding", role: "status" })];
  const most = looked && weights.strongest(looked);
  function show(step) {
    if (looked) source.shade(looked[step].map((weight) => weight / most));
    target.toggle("now", (at) => at === step);
    target.toggle("unwritten", (at) => at > step);
    list.replaceChildren(...bars(steps[step], book.label));
    says.textContent = comment(steps[step], step, book.label, isGiven);
  }
  const leaf = (side, tag, node) => html("div", { class: `leaf ${side}` }, html("span", { class: "tag" }, tag), node);
  return html("figure", { class: "writing" }, player(steps.length, show), says,
    html("div", { class: "spread leaves" },
      leaf("source", looked ? "attended to" : "source", source.node), leaf("target", "generated", target.node)),
    html("p", { class: "panel-name" }, "The most probable next tokens"), list);
}

export { stepsOf, lookedAt, percent, writingView };
