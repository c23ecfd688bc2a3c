"""How well questions find their answers: recall and reciprocal rank; and what is chosen by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.pairs import Pair
from regard.data.split import normalise
from regard.run import Run
from regard.tasks.retrieve import RetrieveSettings
from regard.tasks.retrieve.data import KnowledgeEntry
from regard.tasks.retrieve.index import KnowledgeIndex, MatchScores, Scores

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


def right_entries(entries: Sequence[KnowledgeEntry], pairs: Sequence[Pair]) -> list[int | None]:
    """The number of the entry that answers each question as it should be; None where there is none."""
    numbers = {normalise(entry.answer): number for number, entry in enumerate(entries)}
    return [numbers.get(normalise(pair.target)) for pair in pairs]


def compare_all(index: KnowledgeIndex, questions: Sequence[str]) -> MatchScores:
    """Any number of questions with all entries, some at a time."""
    size = max(TOGETHER // max(len(index.texts), 1), 1)
    chunks = [questions[start : start + size] for start in range(0, len(questions), size)]
    found = [index.by_entry(chunk, index.compare(chunk)) for chunk in chunks]
    bm25, dense = (
        None if parts[0] is None else np.concatenate([part for part in parts if part is not None])
        for parts in zip(*found, strict=True)
    )
    return MatchScores(bm25, dense)


# ---------------------------------------------------------------------------------------------------------------------
# Choices


def tune(index: KnowledgeIndex, pairs: Sequence[Pair]) -> dict[str, dict[str, float]]:
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
    answered = index.settings.target_answer_rate
    there = {"both": ("bm25", "dense", "both")}.get(index.settings.method, (index.settings.method,))
    found = {}
    for method in there:
        weight = find_weight(compared.by(method), right) if method == "both" else None
        best_Q = compared.by(method).total(weight or 0.0).max(1)
        threshold = math.floor(1e4 * float(np.quantile(best_Q, 1 - answered, method="lower"))) / 1e4  # it must reach it
        found[method] = {"threshold": threshold} | ({"dense_weight": weight} if weight is not None else {})
    return found


def find_weight(compared: MatchScores, right_Q: Sequence[int]) -> float:
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


# Weight and threshold of a run's knowledge base, found on questions that the encoder has never seen.


def tune_run(run: Run, index: KnowledgeIndex, log: Callable[[str], None]) -> RetrieveSettings:
    """Put what the held-out questions ask for into the recipe and the card, and give the settings.

    What the user has set stays; what was found before is found anew. Few questions leave everything as it is. That the
    knowledge base may hold these very questions is not made use of.
    """
    settings: RetrieveSettings = run.recipe.task
    pairs = run.held_out()
    found = tune(index.without(pair.source for pair in pairs), pairs) if pairs else {}
    if not found:
        return settings
    before = run.card.get("tuned", {}).get(settings.method, {})
    own: dict[str, Any] = {
        name: value
        for name, value in found[settings.method].items()
        if getattr(settings, name) in (getattr(RetrieveSettings(), name), before.get(name))
    }
    run.write_card(run.card | {"tuned": found})
    if own:
        settings = replace(settings, **own)
        run.write_recipe(replace(run.recipe, task=settings))
        named = " and ".join(f"{name} {value:g}" for name, value in sorted(own.items(), reverse=True))
        log(f"{named}, found on {len(pairs):,} held-out questions")
    return settings
