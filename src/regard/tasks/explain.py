"""Why this word? Text in, and for each output word how much each input word did for it; and which answer to trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.analysis.alignment import Links
from regard.analysis.attribution import METHODS, Attribution, Pair, attribute
from regard.analysis.faithfulness import EVERY_WAY, Case, Faithfulness, Ways, measure_faithfulness
from regard.analysis.trace import Side
from regard.data.batch import make_batch
from regard.data.tokenizer import UNK
from regard.data.words import words
from regard.errors import SettingsError
from regard.tasks.align import text_side
from regard.tasks.translate import Translator

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


class Example(NamedTuple):
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
    case = read_case(translator, Example(text, target))
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
    translator: Translator, examples: Sequence[Example], ways: Ways = EVERY_WAY, **settings: Any
) -> Faithfulness:
    """How far each way to explain can be trusted, over sentences; see `analysis.faithfulness` for the settings."""
    ways = {name: (method, _options(translator, dict(options))) for name, (method, options) in ways.items()}
    cases = [
        read_case(translator, example) for example in examples if example.source.strip() and example.target.strip()
    ]
    return measure_faithfulness(translator.model, cases, ways, **settings)


def read_case(translator: Translator, example: Example) -> Case:
    """A text pair as the model reads it."""
    if not example.source.strip():
        raise SettingsError("there is nothing to explain: the text is empty")
    ids = translator.source.encode(example.source), translator.target.encode(example.target)
    batch = make_batch([ids], translator.source.pad, translator.target.pad).to(translator.model.output.weight.device)
    source, target = text_side(translator.source, example.source), text_side(translator.target, example.target)
    homes = _homes(source, example.source), _homes(target, example.target)
    links = tuple(sorted({(homes[0][one], homes[1][other]) for one, other in example.links}))
    return Case(Pair(batch.source, batch.target_input_BT, batch.target_output_BT), source, target, links)


def _homes(side: Side, text: str) -> list[int]:
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
