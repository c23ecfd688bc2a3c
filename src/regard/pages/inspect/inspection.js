// A look inside one translation, as nodes: the opening, then one section for each way to look. What the data lack is
// left out.
import * as choices from "./choices.js";
import { creditView } from "./credit.js";
import { html } from "../common/draw.js";
import { names, section } from "../common/frame.js";
import { guessesView } from "./guesses.js";
import { entropyView } from "./heights.js";
import * as look from "./look.js";
import { mixingView } from "./mixing.js";
import { multiplesView } from "./multiples.js";
import { openingView } from "./opening.js";
import * as positions from "./positions.js";
import * as roles from "./roles.js";
import { scatterView } from "./scatter.js";
import * as sentence from "./sentence.js";
import * as toggles from "./switches.js";
import { tracedView } from "./traced.js";
import { treeView } from "./tree.js";
import * as writing from "./writing.js";

const formula = (text) => html("code", { class: "formula" }, text);

// `begin` says what is chosen at first, `switches` lets heads be switched off (switches.js), and `further` stands in the
// place of attributions that the data do not have yet.
function inspectionView(data, { begin, switches, further } = {}) {
  const languages = data.languages ?? {};
  const maps = data.attention ?? [];
  const heads = data.roles ?? [];
  const book = sentence.open(data);
  const picked = choices.make({ unit: "words", ...(maps.length && (data.start ?? look.firstOf(maps))), ...begin });
  const steps = data.next ? writing.stepsOf(data.next, data.target) : null;
  const looked = writing.lookedAt(book, maps);
  const beside = switches && maps.length > 0 && toggles.large(switches, maps, picked);

  const sections = [
    section("heads", "Every head", [
      "Each small map is one head: rows look, columns are looked at. Layers run down and heads across, counted from 0 "
      + `as in Regard's names. Choose one to see it large.${switches
        ? " The switch below a head takes it out of the model, and the sentence is translated again." : ""}`,
      formula("softmax(Q Kᵀ / √d)"),
    ], multiplesView(book, maps, heads, picked, switches)),
    section("writing", "Word by word", [
      `The translation is written one token at a time. At each step the model ${looked
        ? "looks at the source, shaded by the average of all heads, and " : ""}gives every token of its vocabulary a `
      + "probability.",
      formula("P(yₜ | y₁ … yₜ₋₁, x)"),
    ], writing.writingView(book, steps, looked, languages, data.translation?.given)),
    section("guesses", "What might have stood there",
      "The same probabilities as one table, in percent: a row is a place in the translation, a column a token of the "
      + "vocabulary. A row with one dark cell is a place without doubt.",
      guessesView(book, steps)),
    section("search", "The search",
      "Beam search keeps a few beginnings at a time and goes on with the likeliest. Figures are log-probabilities up "
      + `to there. ${data.scoring ?? ""}`,
      treeView(book, data.tree?.nodes)),
    section("credit", "Which words made this word?",
      "Weights say where a model looks, not what made the difference. Each method answers in its own way; where they "
      + "agree, the answer is safer.",
      creditView(book, data.attribution, languages) ?? (!data.attribution && further)),
    section("roles", "Head roles", roles.message(heads), roles.rolesView(heads, maps, picked)),
    section("entropy", "How widely heads look", [
      "0 bits: one word alone. One bit more: twice as many words.",
      formula("H = − Σ w log₂ w"),
    ], entropyView(maps)),
    section("mixing", "How tokens mix",
      "From layer to layer a state holds less of its own token and more of the others. Measured is the size of its "
      + "derivative by each input token, made to sum to one.",
      mixingView(book, data.mixing)),
    section("traced", "Can a state be traced to its token?",
      "A state is compared with the inputs it might have come from, as it is or through a map that was learnt on other "
      + "sentences. Where its own token is no longer the nearest, its weights tell little about words.",
      tracedView(data.identifiability)),
    section("vectors", "Tokens in the plane",
      "Vectors have many dimensions; drawn here are the two in which the tokens of this sentence differ most. Higher "
      + "layers know the context.",
      scatterView(book, data.planes)),
    section("positions", "Places", positions.message(data.positions), positions.positionsView(data.positions)),
  ].filter(Boolean);

  return { picked, nodes: [openingView(data, book, maps, picked, names(languages), beside), ...sections] };
}

export { inspectionView };
