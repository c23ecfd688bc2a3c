"""Retrieval scores: combines BM25 and dense (vector) scores, computes recall and MRR, tunes weight and threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.pairs import Pair
from regard.data.split import normalize
from regard.errors import RunError
from regard.run import Run
from regard.tasks.retrieve.data import KnowledgeEntry
from regard.tasks.retrieve.settings import RetrieveSettings

if TYPE_CHECKING:
    from regard.tasks.retrieve.index import KnowledgeIndex

WEIGHTS = [step / 20 for step in range(21)]

Scores = NDArray[np.float32]
TINY = np.float32(1e-6)


class MatchScores(NamedTuple):
    """BM25 scores and dense (vector) scores of Q questions; None for a method that is not used.

    The shape is [Q, T] for scores with T texts, or [Q, E] for scores with E entries of a knowledge base.
    """

    bm25: Scores | None
    dense: Scores | None

    def by(self, method: str) -> MatchScores:
        """Return only the scores that `method` uses: "bm25" or "dense", or both for "hybrid"."""
        return MatchScores(None if method == "dense" else self.bm25, None if method == "bm25" else self.dense)

    def total(self, weight: float) -> Scores:
        """Return `weight` times the dense plus (1 - `weight`) times the BM25 scores, or the scores of the only method.

        First, the scores of a question are divided by the best score of their method. Finally, the sum is multiplied by
        the weighted sum of both best scores, so that different questions have comparable scores.
        """
        if self.bm25 is None or self.dense is None:
            only = self.dense if self.bm25 is None else self.bm25
            assert only is not None
            return only
        words, vectors = (scores.max(1, keepdims=True, initial=TINY) for scores in (self.bm25, self.dense))
        share, rest = np.float32(weight), np.float32(1 - weight)
        total: Scores = (share * self.dense / vectors + rest * self.bm25 / words) * (share * vectors + rest * words)
        return total


@dataclass(frozen=True)
class RetrievalScores:
    """Quality of retrieval on questions whose correct answers are known: recall, MRR, share of answered questions."""

    recall_1: float
    """Share of questions for which the correct answer is first."""
    recall_5: float
    """Share of questions for which the correct answer is among the first five."""
    mrr: float
    """Mean reciprocal rank of the correct answer."""
    answered: float
    """Share of questions whose best score reaches the threshold."""
    questions: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def rank(scores_QE: Scores, right_Q: Sequence[int]) -> NDArray[np.int64]:
    """Return the rank, from 1, of the correct entry of each of Q questions, by the scores [Q, E] of E entries.

    `right_Q` are the indices of the correct entries. Other entries with the same score rank before the correct entry.
    """
    own_Q1 = np.take_along_axis(scores_QE, np.asarray(right_Q)[:, None], 1)
    return (scores_QE >= own_Q1).sum(1)


def score(scores_QE: Scores, right_Q: Sequence[int], threshold: float) -> RetrievalScores:
    ranks = rank(scores_QE, right_Q)
    return RetrievalScores(
        recall_1=float((ranks <= 1).mean()),
        recall_5=float((ranks <= 5).mean()),
        mrr=float((1 / ranks).mean()),
        answered=float((scores_QE.max(1) >= threshold).mean()),
        questions=len(ranks),
    )


def right_entries(entries: Sequence[KnowledgeEntry], pairs: Sequence[Pair]) -> list[int]:
    """Return the index of the entry with the answer of each (question, answer) pair; an unknown answer is an error."""
    index = {normalize(entry.answer): place for place, entry in enumerate(entries)}
    for pair in pairs:
        if normalize(pair.target) not in index:
            raise RunError(
                f'the answer "{pair.target[:60]}" is not in the knowledge base; add it, or leave out its questions'
            )
    return [index[normalize(pair.target)] for pair in pairs]


# ---------------------------------------------------------------------------------------------------------------------
# Tuning


def tune(index: KnowledgeIndex, pairs: Sequence[Pair]) -> dict[str, dict[str, float]]:
    """Find the best threshold of each method, and the dense weight of "hybrid", on (question, correct answer) pairs.

    The result has, for each method, "threshold" and, for "hybrid", "dense_weight". At the threshold, the share
    `retrieve.target_answer_rate` of the questions is answered. Pairs whose answers are not in the index are left out.
    With fewer than 30 pairs, the result is empty.
    """
    answers = {normalize(entry.answer) for entry in index.entries}
    pairs = [pair for pair in pairs if normalize(pair.target) in answers]
    if len(pairs) < 30:
        return {}
    compared = index.compare_all([pair.source for pair in pairs])
    right = right_entries(index.entries, pairs)
    used, answered = index.settings.method, index.settings.target_answer_rate
    found = {}
    for method in ("bm25", "dense", "hybrid") if used == "hybrid" else (used,):
        weight = find_weight(compared.by(method), right) if method == "hybrid" else None
        best_Q = compared.by(method).total(weight or 0.0).max(1)
        quantile = float(np.quantile(best_Q, 1 - answered, method="lower"))
        threshold = math.floor(1e4 * quantile) / 1e4  # rounded down, so that the quantile reaches the threshold
        found[method] = {"threshold": threshold} | ({"dense_weight": weight} if weight is not None else {})
    return found


def find_weight(compared: MatchScores, right_Q: Sequence[int]) -> float:
    """Return the weight (0 to 1) of the dense scores in the sum with BM25 that gives the best mean reciprocal rank.

    `right_Q` are the indices of the correct entries of the questions. All weights within two standard errors of the
    best result count as equally good. Of these, the largest weight is returned if dense scores alone rank at least as
    well as BM25 alone; otherwise the smallest.
    """
    found_WQ = np.stack([1 / rank(compared.total(weight), right_Q) for weight in WEIGHTS])
    mean_W = found_WQ.mean(1)
    best = int(mean_W.argmax())
    error_W = (found_WQ[best] - found_WQ).std(1) / len(right_Q) ** 0.5
    good = np.flatnonzero(mean_W[best] - mean_W <= 2 * error_W)
    return WEIGHTS[good[-1] if mean_W[-1] >= mean_W[0] else good[0]]


def tune_run(run: Run, index: KnowledgeIndex, log: Callable[[str], None]) -> RetrieveSettings:
    """Tune the dense weight and the threshold on the held-out questions of a run; return the new settings.

    Tuned values are written into recipe.toml and card.json. Values that the user has set stay; values that were tuned
    before are tuned again. With fewer than 30 questions, nothing changes. For tuning, the held-out questions are
    removed from the index.
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
