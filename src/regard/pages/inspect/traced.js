// Token identifiability: by layer, the share of hidden states from which the token can be recovered.
import { html, number, choice, plural } from "../common/draw.js";
import * as heights from "./heights.js";

const KINDS = { identity: "of-decoder", linear: "of-encoder", mlp: "of-cross" };
const NAMES = { identity: "as it is", linear: "linear map", mlp: "perceptron" };
const DISTANCES = { cosine: "by angle", l2: "by distance" };

const short = (name) => name.replace("encoder.", "").replace(/^(?=\d)/, "layer ");

function curves({ places, curves: all, chance }, distance) {
  const own = all.filter((curve) => curve.distance === distance);
  const series = own.map((curve) => ({ name: NAMES[curve.map] ?? curve.map, kind: KINDS[curve.map] ?? "of-cross",
    points: curve.value.map((share, index) => [index, share]).filter(([, share]) => share !== null) }))
    .filter(({ points }) => points.length);
  const said = series.map(({ name, points }) => `${name} ${points.map(([, share]) => number(share, 3)).join(", ")}`);
  return heights.chart(series, { xs: places.map(short), high: 1, across: "",
    label: `Share of tokens identified, by layer; chance ${number(chance, 4)}. ${said.join("; ")}.` });
}

function tracedView(data) {
  if (!data?.curves?.length) return null;
  const host = html("div", {});
  const show = (distance) => host.replaceChildren(curves(data, distance));
  const known = [...new Set(data.curves.map(({ distance }) => distance))];
  show(known[0]);
  return html("figure", { class: "traced" },
    html("div", { class: "bar" }, choice("Nearest", known.map((one) => [one, DISTANCES[one] ?? one]), known[0], show)),
    html("p", { class: "panel-name" }, "Share of tokens that are the nearest input to their hidden state"), host,
    html("p", { class: "panel-name" }, `${plural(data.tokens, "token")} of ${plural(data.sentences, "sentence")} that were `
      + `not used in training, among ${data.candidates === "vocabulary" ? "the whole vocabulary" : "the tokens of their sentence"}; `
      + `chance level ${number(100 * data.chance, 2)} %.`));
}

export { tracedView };
