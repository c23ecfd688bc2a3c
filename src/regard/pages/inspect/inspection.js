// The inspection of one translation: the opening, then the sections for which there are data.
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

// `begin`: the first choices. `switches`: switches heads off (switches.js). `further`: shown instead of attributions if
// the data have none yet.
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
      "Each small map shows the weights of one head: rows are queries, columns are keys. Layers run down and heads "
      + `across, counted from 0. Choose a head to enlarge it.${switches
        ? " The switch below a head disables it, and the sentence is translated again." : ""}`,
      data.attention_formula && formula(data.attention_formula),
    ], multiplesView(book, maps, heads, picked, switches)),
    section("writing", "Decoding step by step", [
      `The translation is generated one token at a time. At each step the model ${looked
        ? "attends to the source (shaded: the average of all heads) and " : ""}gives every token of its vocabulary a `
      + "probability.",
      formula("P(yₜ | y₁ … yₜ₋₁, x)"),
    ], writing.writingView(book, steps, looked, languages, data.translation?.given)),
    section("guesses", "Probabilities of the next token",
      "The same probabilities as one table, in percent: a row is a position in the translation, a column a token of "
      + "the vocabulary. A row with one dark cell is a position where the model was certain.",
      guessesView(book, steps)),
    section("search", "Beam search",
      "Beam search keeps a few hypotheses at each step and extends the most probable ones. The numbers are cumulative "
      + `log-probabilities. ${data.scoring ?? ""}`,
      treeView(book, data.tree?.nodes)),
    section("credit", "Attribution",
      "Which words caused this word? Attention weights do not answer this. Attribution methods estimate it in "
      + "different ways; a result on which they agree is more reliable.",
      creditView(book, data.attribution, languages) ?? (!data.attribution && further)),
    section("roles", "Head roles", roles.message(heads), roles.rolesView(heads, maps, picked)),
    section("entropy", "Entropy of the heads", [
      "0 bits: all weight on one word. Each further bit: spread over twice as many words.",
      formula("H = − Σ w log₂ w"),
    ], entropyView(maps)),
    section("mixing", "Mixing of tokens",
      "From layer to layer a hidden state depends less on its own token and more on the others. Measured by the norm "
      + "of its gradient with respect to each input token, normalized to sum to one.",
      mixingView(book, data.mixing)),
    section("traced", "Token identifiability",
      "Each hidden state is compared with the possible input embeddings, directly or after a linear map that was "
      + "trained on other sentences. Where its own token is no longer the nearest, attention weights say little about words.",
      tracedView(data.identifiability)),
    section("vectors", "Token vectors in two dimensions",
      "The first two principal components of the vectors of this sentence. In higher layers the vectors also depend on "
      + "the context.",
      scatterView(book, data.planes)),
    section("positions", "Positional encoding", positions.message(data.positions),
      positions.positionsView(data.positions)),
  ].filter(Boolean);

  return { picked, nodes: [openingView(data, book, maps, picked, names(languages), beside), ...sections] };
}

export { inspectionView };
