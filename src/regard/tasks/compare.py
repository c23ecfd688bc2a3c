"""How sure a score is, and whether one system is better than another: a test set, resampled (Koehn 2004).

Draws, intervals and p-values are those of `sacrebleu --paired-bs`, and tests hold them to it. Its `PairedTest` itself
gives no interval of the difference, takes the seed from the environment, and keeps all resamples in memory at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

METRICS = {
    "bleu": {"label": "BLEU", "better": "higher"},
    "chrf": {"label": "chrF", "better": "higher"},
    "ter": {"label": "TER", "better": "lower"},
}
SAMPLES, SEED = 1000, 12345
"""Test sets that are drawn, and where the draws begin: what sacreBLEU takes, too."""
SIGNIFICANT = 0.05
"""A difference with a smaller p-value is called one."""
BUCKETS = {"0": 0, "1-10": 10, "11-20": 20, "21-30": 30, "31-50": 50, "over 50": 10**9}
"""Lengths of the source, in what stands between white space: name and longest. The first holds empty lines."""
FEW = 20
"""Of fewer sentences than these, resampling says nothing worth saying: no interval, no p-value."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Measure:
    """What a metric counts in each sentence (N), in so many columns (C). Scores of any selection follow from sums."""

    metric: Any  # of sacreBLEU, which has no types
    counts_NC: Array

    def score(self, times_N: Array | None = None) -> float:
        """Score of the whole, or of a test set in which each sentence stands so many times."""
        return self._of(self.counts_NC.sum(0) if times_N is None else times_N @ self.counts_NC)

    def each(self) -> list[float]:
        """Score of every sentence by itself."""
        return [self._of(counts_C) for counts_C in self.counts_NC]

    def part(self, rows: Rows) -> Measure:
        """The same metric over some of the sentences."""
        return Measure(self.metric, self.counts_NC[rows])

    @property
    def signature(self) -> str:
        """What makes the score travel."""
        return str(self.metric.get_signature())

    def _of(self, totals_C: Array) -> float:
        return float(self.metric._compute_score_from_stats(totals_C.tolist()).score)


Measures = dict[str, Measure]


def measure(translations: Sequence[str], references: Sequence[str]) -> Measures:
    """BLEU, chrF and TER over translations with one reference each."""
    from sacrebleu import BLEU, CHRF, TER

    return {
        name: Measure(metric, np.array(metric._extract_corpus_statistics(translations, [references]), dtype=np.float64))
        for name, metric in zip(METRICS, (BLEU(), CHRF(), TER()), strict=True)
    }


@dataclass(frozen=True)
class Scored:
    """A score, and what it would be on other test sets like this one."""

    score: float
    resampled_R: Array
    """Empty where there are too few sentences."""

    @property
    def interval(self) -> Interval | None:
        """What holds 95 % of the resampled scores."""
        return interval(self.resampled_R)


def score_all(systems: Sequence[Measures]) -> list[dict[str, Scored]]:
    """Score every metric of every system; all of them see the same draws, so that they can be compared."""
    measures = [one for system in systems for one in system.values()]
    resampled = iter(resample(measures))
    return [{name: Scored(one.score(), next(resampled)) for name, one in system.items()} for system in systems]


def resample(measures: Sequence[Measure]) -> list[Array]:
    """Scores of each measure on every resample [R]."""
    draws, sentences = np.random.default_rng(SEED), len(measures[0].counts_NC)
    samples = SAMPLES if sentences >= FEW else 0
    scores = [np.empty(samples) for _ in measures]
    for sample in range(samples):
        drawn = draws.choice(sentences, size=sentences)
        times_N = np.bincount(drawn, minlength=sentences).astype(np.float64)
        for found_R, one in zip(scores, measures, strict=True):
            found_R[sample] = one.score(times_N)
    return scores


def interval(scores_R: Array) -> Interval | None:
    """What holds 95 % of the resampled scores; None where there are none."""
    if not len(scores_R):
        return None
    outside = len(scores_R) // 40
    ordered = np.sort(scores_R)
    return float(ordered[outside]), float(ordered[-1 - outside])


@dataclass(frozen=True)
class Difference:
    """By how much the first score is above the second, and how sure that is."""

    difference: float
    interval: Interval | None
    p: float | None
    better: int | None
    """0 or 1 for the first or second system; None where chance may have made the difference."""


def compare(name: str, first: Scored, second: Scored) -> Difference:
    """Compare two systems by a metric."""
    apart, apart_R = first.score - second.score, first.resampled_R - second.resampled_R
    p = p_value(apart, apart_R) if len(apart_R) else None
    is_first_better = (apart > 0) == (METRICS[name]["better"] == "higher")
    around = interval(apart_R)
    is_sure = p is not None and p < SIGNIFICANT and around is not None and (around[0] > 0 or around[1] < 0)
    return Difference(apart, around, p, int(not is_first_better) if is_sure else None)


def p_value(apart: float, apart_R: Array) -> float:
    """How often chance would make a difference as large as this one."""
    if not apart_R.any():
        return 1.0  # where sacreBLEU says 0.001: two systems that say the same do not differ
    sizes_R = np.abs(apart_R)
    larger = np.count_nonzero(sizes_R - sizes_R.mean() > abs(apart))
    return (int(larger) + 1) / (len(apart_R) + 1)


def by_length(sources: Sequence[str]) -> dict[str, Rows]:
    """Places of the sentences in each bucket of lengths that holds any."""
    lengths = [len(source.split()) for source in sources]
    found = np.searchsorted(list(BUCKETS.values()), lengths)
    groups = {name: np.flatnonzero(found == place) for place, name in enumerate(BUCKETS)}
    return {name: rows for name, rows in groups.items() if len(rows)}
