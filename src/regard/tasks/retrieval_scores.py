"""How well questions find their answers: recall and reciprocal rank; and what is chosen by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.fingerprints import normalise
from regard.data.formats import Pair
from regard.data.knowledge import Entry
from regard.tasks.index import Compared, Index, Scores

ENOUGH_QUESTIONS = 30
"""Fewer cannot tell one weight, or one threshold, from another."""
WEIGHTS = [step / 20 for step in range(21)]
TOGETHER = 4_000_000
"""Comparisons of a question with a text that are made at once."""

Ranks = NDArray[np.int64]


@dataclass(frozen=True)
class RetrievalScores:
    """Of questions whose answers are known."""

    recall_1: float
    """Share whose answer comes first."""
    recall_5: float
    """Share whose answer is among the first five."""
    mrr: float
    """Mean of 1 / rank."""
    answered: float
    """Share with a score at or above the threshold."""
    questions: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def rank(scores_QE: Scores, right_Q: Sequence[int]) -> Ranks:
    """The place of each right entry, from 1; entries with the same score go before it."""
    own_Q1 = np.take_along_axis(scores_QE, np.asarray(right_Q)[:, None], 1)
    ranks: Ranks = (scores_QE >= own_Q1).sum(1)
    return ranks


def score(scores_QE: Scores, right_Q: Sequence[int], threshold: float) -> RetrievalScores:
    """Judge scores of questions against entries."""
    ranks = rank(scores_QE, right_Q)
    return RetrievalScores(
        recall_1=float((ranks <= 1).mean()),
        recall_5=float((ranks <= 5).mean()),
        mrr=float((1 / ranks).mean()),
        answered=float((scores_QE.max(1) >= threshold).mean()),
        questions=len(ranks),
    )


def right_entries(entries: Sequence[Entry], pairs: Sequence[Pair]) -> list[int | None]:
    """The number of the entry that answers each question as it should be; None where there is none."""
    numbers = {normalise(entry.answer): number for number, entry in enumerate(entries)}
    return [numbers.get(normalise(pair.target)) for pair in pairs]


def compare_all(index: Index, questions: Sequence[str]) -> Compared:
    """Any number of questions with all entries, some at a time."""
    size = max(TOGETHER // max(len(index.texts), 1), 1)
    chunks = [questions[start : start + size] for start in range(0, len(questions), size)]
    found = [index.by_entry(chunk, index.compare(chunk)) for chunk in chunks]
    bm25, dense = (
        None if parts[0] is None else np.concatenate([part for part in parts if part is not None])
        for parts in zip(*found, strict=True)
    )
    return Compared(bm25, dense)


# ---------------------------------------------------------------------------------------------------------------------
# Choices


def tune(index: Index, pairs: Sequence[Pair]) -> dict[str, dict[str, float]]:
    """For each method that the index has: the settings under which held-out questions fare best.

    Nothing where there are too few questions whose answers are known.
    """
    numbered = [
        (pair, right)
        for pair, right in zip(pairs, right_entries(index.entries, pairs), strict=True)
        if right is not None
    ]
    if len(numbered) < ENOUGH_QUESTIONS:
        return {}
    compared = compare_all(index, [pair.source for pair, _ in numbered])
    right = [number for _, number in numbered]
    answered = index.settings.answered
    there = {"both": ("bm25", "dense", "both")}.get(index.settings.method, (index.settings.method,))
    found = {}
    for method in there:
        weight = find_weight(compared.by(method), right) if method == "both" else None
        best_Q = compared.by(method).total(weight or 0.0).max(1)
        threshold = math.floor(1e4 * float(np.quantile(best_Q, 1 - answered, method="lower"))) / 1e4  # it must reach it
        found[method] = {"threshold": threshold} | ({"weight": weight} if weight is not None else {})
    return found


def find_weight(compared: Compared, right_Q: Sequence[int]) -> float:
    """The share of the dense score with which right answers rank best.

    Of all that are as good, within two standard errors of the difference, the one that is nearest to the better of the
    two methods alone: it gives way to the other only as far as that clearly helps.
    """
    found_WQ = np.stack([1 / rank(compared.total(weight), right_Q) for weight in WEIGHTS])
    mean_W = found_WQ.mean(1)
    best = int(mean_W.argmax())
    error_W = (found_WQ[best] - found_WQ).std(1) / len(right_Q) ** 0.5
    good = np.flatnonzero(mean_W[best] - mean_W <= 2 * error_W)
    return WEIGHTS[good[-1] if mean_W[-1] >= mean_W[0] else good[0]]
