"""Scores of translations against references, each with the signature that makes the number travel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.errors import CorpusError
from regard.tasks.answer import Answer


@dataclass(frozen=True)
class Scores:
    """BLEU, chrF and TER of a set of translations, as sacreBLEU computes them."""

    bleu: float
    chrf: float
    ter: float
    sentences: int
    signatures: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def score_translations(translations: Sequence[str], references: Sequence[str]) -> Scores:
    """Score translations against one reference each."""
    from sacrebleu import BLEU, CHRF, TER

    if len(translations) != len(references):
        raise CorpusError("references", f"{len(references)} lines for {len(translations)} translations")
    if not translations:
        raise CorpusError("references", "there is nothing to score")
    metrics = {"bleu": BLEU(), "chrf": CHRF(), "ter": TER()}
    values = {name: metric.corpus_score(translations, [references]).score for name, metric in metrics.items()}
    signatures = {name: str(metric.get_signature()) for name, metric in metrics.items()}
    return Scores(**values, sentences=len(translations), signatures=signatures)


def quick_scores(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF alone: what a validation during training needs (TER is slow)."""
    from sacrebleu import BLEU, CHRF

    return {
        "bleu": BLEU().corpus_score(translations, [references]).score,
        "chrf": CHRF().corpus_score(translations, [references]).score,
    }


def count_flags(answers: Iterable[Answer]) -> dict[str, int]:
    """How many translations carry each flag, the commonest first."""
    return dict(Counter(flag for answer in answers for flag in answer.flags).most_common())
