"""Why this word? Text in, and for each output word how much each input word did for it; and which answer to trust."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.analysis.alignment import Links
from regard.analysis.attribution import METHODS, Attribution, TokenPair, attribute
from regard.analysis.embedding_maps import embedding_table
from regard.analysis.faithfulness import EVERY_WAY, ExplainedPair, Faithfulness, Ways, measure_faithfulness
from regard.analysis.identifiability import Identifiability, encoder_states, identifiability
from regard.analysis.trace import TraceSide
from regard.data.batches import TokenSource, make_batch, make_sources
from regard.data.pairs import Pair
from regard.errors import ModelError, SettingsError
from regard.export.folder import fingerprint
from regard.files import write_atomically
from regard.run import Run
from regard.tasks.translate.alignment import text_side
from regard.tasks.translate.translator import Translator, load
from regard.text.tokenizer import UNK
from regard.text.words import words

START = "<s>"
ABSENT = ("zero", "unk", "pad")
"""What may stand where a token is absent (the option `baseline`): nothing, or one of two special tokens."""


@dataclass(frozen=True)
class Explanation:
    """How much each word of the source, and of the translation so far, did for each word of the translation."""

    method: str
    about: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    """The words that were written, the end last."""
    prefix: tuple[str, ...]
    """The words that the model had read of its own translation: the start, then all but the end."""
    attribution: Attribution
    """Rows are `target`, columns `source` and `prefix`."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the values as the method gives them, and normalised so that a row's sizes sum to one."""
        even = self.attribution.normalised()
        return {
            "method": self.method,
            "about": self.about,
            "signed": self.attribution.signed,
            "source": list(self.source),
            "target": list(self.target),
            "prefix": list(self.prefix),
            "from_source": _rounded(self.attribution.source_TS),
            "from_prefix": _rounded(self.attribution.target_TT),
            "share_of_source": _rounded(even.source_TS),
            "share_of_prefix": _rounded(even.target_TT),
            "gap": None if self.attribution.gap_T is None else _rounded(self.attribution.gap_T),
        }

    def __str__(self) -> str:
        """Each output word with the source words that did most for it."""
        even_TS = self.attribution.normalised().source_TS
        width = max(map(len, self.target))
        lines = []
        for word, row_S in zip(self.target, even_TS, strict=True):
            best = row_S.topk(min(3, len(self.source)))
            named = [
                f"{self.source[place]} {share:.2f}"
                for share, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            ]
            lines.append(f"{word:<{width}}  {', '.join(named)}")
        return "\n".join(lines)


class ExplainedExample(NamedTuple):
    """A text, a translation of it, and which words (by `data.words`) render which, if that is known."""

    source: str
    target: str
    links: Links = ()


def explain(
    translator: Translator, text: str, target: str | None = None, method: str = "alti", **options: Any
) -> Explanation:
    """Ask the (first) model of a translator which words made each word of `target`, or of its own translation.

    The options are those of the method; a `baseline` is "zero", "unk" or "pad".
    """
    if target is None:
        target = translator.translate([text])[0].text
    case = read_case(translator, ExplainedExample(text, target))
    found = attribute(translator.model, *case.pair, method, **_options(translator, options))
    return Explanation(
        method,
        METHODS[method].about,
        case.source.words,
        case.target.words,
        case.target.shifted(START).words,
        found.by_words(case.source, case.target),
    )


def compare_explanations(
    translator: Translator, examples: Sequence[ExplainedExample], ways: Ways = EVERY_WAY, **settings: Any
) -> Faithfulness:
    """How far each way to explain can be trusted, over sentences; see `analysis.faithfulness` for the settings."""
    ways = {name: (method, _options(translator, dict(options))) for name, (method, options) in ways.items()}
    cases = [
        read_case(translator, example) for example in examples if example.source.strip() and example.target.strip()
    ]
    return measure_faithfulness(translator.model, cases, ways, **settings)


def read_case(translator: Translator, example: ExplainedExample) -> ExplainedPair:
    """A text pair as the model reads it."""
    if not example.source.strip():
        raise SettingsError("there is nothing to explain: the text is empty")
    ids = translator.source.encode(example.source), translator.target.encode(example.target)
    batch = make_batch([ids], translator.source.pad, translator.target.pad).to(translator.model.output.weight.device)
    source, target = text_side(translator.source, example.source), text_side(translator.target, example.target)
    homes = _homes(source, example.source), _homes(target, example.target)
    links = tuple(sorted({(homes[0][one], homes[1][other]) for one, other in example.links}))
    return ExplainedPair(TokenPair(batch.source, batch.target_input_BT, batch.target_output_BT), source, target, links)


def _homes(side: TraceSide, text: str) -> list[int]:
    """For each word of a text its place in the side, where words that share a token are one."""
    return [
        next(place for place, (start, end) in enumerate(side.word_spans) if start < word.end and word.start < end)
        for word in words(text)
    ]


def _options(translator: Translator, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a method with the name of a baseline turned into what it stands for."""
    if "baseline" not in options:
        return options
    name = options["baseline"]
    if name not in ABSENT:
        raise SettingsError(f'baseline must be one of {", ".join(ABSENT)}, not "{name}"')
    tokens = {"zero": None, "unk": (UNK, UNK), "pad": (translator.source.pad, translator.target.pad)}
    return options | {"baseline": tokens[name]}


def _rounded(values: Tensor) -> list[Any]:
    """Numbers as JSON has them; six decimals are more than any method is worth."""
    rounded: list[Any] = torch.round(values.double(), decimals=6).tolist()
    return rounded


# Token identifiability of a trained model over text: which lines the maps learn from, and which they are tried on.


TRAIN_SHARE = 0.7
"""Of the lines, for the maps to learn from (as in Brunner et al. 2020); the rest is for trying them."""
FEWEST, MOST = 20, 1000
"""Lines needed, and lines used."""
ROWS = 64
"""Sentences read at once."""


def identify(
    translator: Translator, lines: Sequence[str], *, whole_vocabulary: bool = False, seed: int = 1
) -> Identifiability:
    """Trace the encoder's states back to the tokens of these lines, which the model should not have been trained on.

    Equal lines count once, so that no sentence is both learnt from and tried. At most a thousand are drawn.
    """
    encoded = sorted({tuple(ids) for ids in translator.source.encode_many(list(lines)) if ids})
    if len(encoded) < FEWEST:
        raise SettingsError(f"token identifiability needs {FEWEST} different held-out lines, not {len(encoded)}")
    Random(seed).shuffle(encoded)
    encoded = encoded[:MOST]
    cut = round(TRAIN_SHARE * len(encoded))
    train, test = (encoder_states(translator.model, _read(translator, part)) for part in (encoded[:cut], encoded[cut:]))
    table_VD = embedding_table(translator.model).cpu().float() if whole_vocabulary else None
    return identifiability(train, test, vocabulary_VD=table_VD, seed=seed)


def _read(translator: Translator, sentences: Sequence[tuple[int, ...]]) -> Iterator[TokenSource]:
    """Batches of sentences of similar lengths."""
    device: torch.device = translator.model.output.weight.device
    ordered = [list(ids) for ids in sorted(sentences, key=len)]
    for start in range(0, len(ordered), ROWS):
        yield make_sources(ordered[start : start + ROWS], translator.source.pad).to(device)


# What only many sentences can tell of a model: which explanation to trust, and how far states lead back to tokens.
#
# The results are kept in the run's folder, and every page that `regard inspect` makes from then on shows them.


FAITHFULNESS, IDENTIFIABILITY, HEADS = "faithfulness.json", "identifiability.json", "heads.json"
SENTENCES = 30


@dataclass(frozen=True)
class CorpusMeasurements:
    """What was found."""

    faithfulness: Faithfulness
    identifiability: Identifiability

    def __str__(self) -> str:
        return f"{self.faithfulness}\n\n{self.identifiability}"


def survey(
    run: Run,
    pairs: Sequence[Pair] = (),
    *,
    sentences: int = SENTENCES,
    log: Callable[[str], None] = lambda doing: None,
) -> CorpusMeasurements:
    """Look at these pairs, or at those that the run has kept, and keep what was found in the run's folder.

    Explanations are compared on the first `sentences`; tokens are traced in all source sentences.
    """
    pairs = [pair for pair in pairs or run.held_out() if pair.source.strip() and pair.target.strip()]
    if not pairs:
        raise SettingsError(
            f"{run.folder}: keeps no held-out pairs; give some with --pairs (TSV, JSON lines, TMX, PO or Parquet)"
        )
    log("loading the model")
    translator = load(run.folder)
    log(f"taking words out of {min(sentences, len(pairs))} sentences")
    examples = [ExplainedExample(pair.source, pair.target) for pair in pairs[:sentences]]
    trusted = compare_explanations(translator, examples, ways_of(translator, examples[0]))
    log("tracing states to their tokens")
    traced = identify(translator, [pair.source for pair in pairs], whole_vocabulary=True)
    for name, found in ((FAITHFULNESS, trusted.as_dict()), (IDENTIFIABILITY, traced.as_dict())):
        keep(run, name, found)
    return CorpusMeasurements(trusted, traced)


def keep(run: Run, name: str, found: dict[str, Any]) -> None:
    """Put what was found into the run's folder, with the weights that it was found in."""
    content = json.dumps(found | {"weights": fingerprint(run)}, ensure_ascii=False)
    write_atomically(run.folder / name, content.encode())


def ways_of(translator: Translator, example: ExplainedExample) -> Ways:
    """The methods that this architecture allows, found by asking each for one sentence."""
    allowed = {}
    for method in METHODS:
        try:
            explain(
                translator, example.source, example.target, method, **({"steps": 2} if method == "integrated" else {})
            )
        except ModelError:
            continue
        allowed[method] = EVERY_WAY[method]
    return allowed
