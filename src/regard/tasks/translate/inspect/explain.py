"""Attribution by words, and measurements over many sentences: faithfulness of explanations, token identifiability.

`survey` stores its results in the run folder. The pages that `regard inspect` writes afterwards show them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from regard.analysis.alignment import Links
from regard.analysis.attribution import Attribution, TokenPair, attribute
from regard.analysis.embedding_maps import embedding_table
from regard.analysis.faithfulness import EVERY_WAY, ExplainedPair, Faithfulness, Ways, measure_faithfulness
from regard.analysis.identifiability import Identifiability, encoder_states, identifiability
from regard.analysis.trace import TraceSide
from regard.data.batches import TokenSource, make_batch, make_sources
from regard.data.pairs import Pair
from regard.errors import SettingsError
from regard.export import fingerprint
from regard.files import chunks, write_atomically
from regard.run import Run
from regard.tasks.translate.alignment import text_side
from regard.tasks.translate.translator import Translator, load
from regard.text.tokenizer import UNK
from regard.text.words import words

FAITHFULNESS, IDENTIFIABILITY, HEADS = "faithfulness.json", "identifiability.json", "heads.json"
"""Files of measurements in a run folder."""
FEWEST, MOST = 20, 1000
"""Minimum and maximum number of lines for token identifiability."""


@dataclass(frozen=True)
class Explanation:
    """The attribution of each word of a translation to the source words and to the earlier words of the translation."""

    method: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    """The generated words, the end token last."""
    prefix: tuple[str, ...]
    """The words that the decoder reads: the start token, then `target` without the end token."""
    attribution: Attribution
    """A row per word of `target`, and a column per word of `source` and `prefix`."""

    def __str__(self) -> str:
        """A line for each word of the translation with the three source words that contribute most, with shares."""
        even_TS = self.attribution.normalised().source_TS
        width = max(map(len, self.target))
        lines = []
        for word, row_S in zip(self.target, even_TS, strict=True):
            best = zip(*(part.tolist() for part in row_S.topk(min(3, len(self.source)))), strict=True)
            named = ", ".join(f"{self.source[place]} {share:.2f}" for share, place in best)
            lines.append(f"{word:<{width}}  {named}")
        return "\n".join(lines)


class ExplainedExample(NamedTuple):
    """A text, its translation and, if known, their word alignment.

    `links` are pairs (source index, target index) of words as `regard.text.words` splits them.
    """

    source: str
    target: str
    links: Links = ()


def explain(
    translator: Translator, text: str, target: str | None = None, method: str = "alti", **options: Any
) -> Explanation:
    """Compute how much each source word and earlier target word contributes to each word of `target`.

    If `target` is None, the translation by the model is explained. `method` is "alti", "rollout" or another name in
    `regard.analysis.attribution.METHODS`. `options` are passed to the method; the option `baseline` is
    "zero", "unk" or "pad". Of an ensemble, only the first model is explained.
    """
    if target is None:
        target = translator.translate([text])[0].text
    case = read_case(translator, ExplainedExample(text, target))
    found = attribute(translator.model, *case.pair, method, **_options(translator, options))
    attribution = found.by_words(case.source, case.target)
    return Explanation(method, case.source.words, case.target.words, case.target.shifted().words, attribution)


def compare_explanations(
    translator: Translator, examples: Sequence[ExplainedExample], ways: Ways = EVERY_WAY, **settings: Any
) -> Faithfulness:
    """Measure on `examples` how faithful attribution methods are to the model; examples with an empty text are skipped.

    `ways` are the methods to compare: a name for the result -> (method, options). By default, these are all methods.
    `settings` are passed to `measure_faithfulness`.
    """
    ways = {name: (method, _options(translator, options)) for name, (method, options) in ways.items()}
    cases = [read_case(translator, one) for one in examples if one.source.strip() and one.target.strip()]
    return measure_faithfulness(translator.model, cases, ways, **settings)


def read_case(translator: Translator, example: ExplainedExample) -> ExplainedPair:
    """Tokenize an example: return its token ids, words and alignment links in the form for attribution methods."""
    if not example.source.strip():
        raise SettingsError("the text is empty; give a text to explain")
    ids = translator.source.encode(example.source), translator.target.encode(example.target)
    batch = make_batch([ids], translator.source.pad, translator.target.pad).to(translator.model.output.weight.device)
    source, target = text_side(translator.source, example.source), text_side(translator.target, example.target)
    index = _side_index(source, example.source), _side_index(target, example.target)
    links = tuple(sorted({(index[0][one], index[1][other]) for one, other in example.links}))
    return ExplainedPair(TokenPair(batch.source, batch.target_input_BT, batch.target_output_BT), source, target, links)


def _side_index(side: TraceSide, text: str) -> list[int]:
    """Return for each word of `text` its index in `side.words`, which joins words that share a token into one word."""
    return [
        next(place for place, (start, end) in enumerate(side.word_spans) if start < word.end and word.start < end)
        for word in words(text)
    ]


def _options(translator: Translator, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `options` with the name in "baseline" replaced by token ids (source, target), or by None for "zero".

    Without a "baseline", the options are unchanged.
    """
    name = options.get("baseline", "zero")
    tokens = {"zero": None, "unk": (UNK, UNK), "pad": (translator.source.pad, translator.target.pad)}
    if name not in tokens:
        raise SettingsError(f'the option baseline must be one of {", ".join(tokens)}, not "{name}"')
    return {**options, "baseline": tokens[name]} if "baseline" in options else dict(options)


def identify(translator: Translator, lines: Sequence[str], *, whole_vocabulary: bool = False) -> Identifiability:
    """Measure how well source tokens can be recovered from the encoder states of each layer (Brunner et al. 2020).

    `lines` are source sentences that the model was not trained on. 70 % of them train maps from states to token
    embeddings, the others test the maps. Equal lines are used once, so that no line is in both parts. A token must be
    found among the tokens of its line or, if `whole_vocabulary`, among the whole vocabulary.
    """
    encoded = sorted({tuple(ids) for ids in translator.source.encode_many(list(lines)) if ids})
    if len(encoded) < FEWEST:
        problem = f"token identifiability needs {FEWEST} different held-out lines, not {len(encoded)}"
        raise SettingsError(f"{problem}; give more pairs with --pairs")
    Random(1).shuffle(encoded)
    encoded = encoded[:MOST]
    cut = round(0.7 * len(encoded))  # as in Brunner et al.
    device = translator.model.output.weight.device

    def read(sentences: Sequence[tuple[int, ...]]) -> Iterator[TokenSource]:
        for some in chunks(map(list, sorted(sentences, key=len)), 64):
            yield make_sources(some, translator.source.pad).to(device)

    train, test = (encoder_states(translator.model, read(part)) for part in (encoded[:cut], encoded[cut:]))
    table_VD = embedding_table(translator.model).cpu().float() if whole_vocabulary else None
    return identifiability(train, test, vocabulary_VD=table_VD)


class CorpusMeasurements(NamedTuple):
    """Results of `survey`: faithfulness of attribution methods, and share of tokens recovered from encoder states."""

    faithfulness: Faithfulness
    identifiability: Identifiability

    def as_dict(self) -> dict[str, Any]:
        return {name: part.as_dict() for name, part in self._asdict().items()}

    def __str__(self) -> str:
        return f"{self.faithfulness}\n\n{self.identifiability}"


def survey(
    run: Run, pairs: Sequence[Pair] = (), *, sentences: int, log: Callable[[str], None] = lambda message: None
) -> CorpusMeasurements:
    """Measure the faithfulness of attribution methods and token identifiability, and store both in the run folder.

    `pairs` are sentence pairs; if empty, the held-out pairs of the run are used. Faithfulness is measured on the first
    `sentences` pairs, token identifiability on the sources of all pairs. `log` receives progress messages.
    """
    pairs = [pair for pair in pairs or run.held_out() if pair.source.strip() and pair.target.strip()]
    if not pairs:
        raise SettingsError(
            f"{run.folder}: has no held-out pairs; give pairs with --pairs (TSV, JSON lines, TMX, PO or Parquet)"
        )
    log("loading the model")
    translator = load(run.folder)
    log(f"comparing explanations on {min(sentences, len(pairs))} sentences")
    examples = [ExplainedExample(pair.source, pair.target) for pair in pairs[:sentences]]
    faithfulness = compare_explanations(translator, examples)
    log("measuring token identifiability")
    recovered = identify(translator, [pair.source for pair in pairs], whole_vocabulary=True)
    write_measurements(run, FAITHFULNESS, faithfulness.as_dict())
    write_measurements(run, IDENTIFIABILITY, recovered.as_dict())
    return CorpusMeasurements(faithfulness, recovered)


def write_measurements(run: Run, name: str, found: dict[str, Any]) -> None:
    """Write the measurements `found` as JSON to the file `name` in the run folder.

    A fingerprint of the weights is added, so that measurements of other weights are recognized as outdated.
    """
    content = json.dumps(found | {"weights": fingerprint(run)}, ensure_ascii=False)
    write_atomically(run.folder / name, content.encode())
