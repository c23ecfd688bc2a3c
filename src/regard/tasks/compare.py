"""How sure a score is, and whether one system is better than another: a test set, resampled (Koehn 2004).

Draws, intervals and p-values are those of `sacrebleu --paired-bs`, and tests hold them to it. Its `PairedTest` itself
gives no interval of the difference, takes the seed from the environment, and keeps all resamples in memory at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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

    of_totals: Callable[[Array], float]
    """The score that follows from the sums of the columns."""
    signature: str
    """sacreBLEU's: version and settings of the metric."""
    counts_NC: Array

    def score(self, times_N: Array | None = None) -> float:
        """Score of the whole, or of a test set in which each sentence stands so many times."""
        return self.of_totals(self.counts_NC.sum(0) if times_N is None else times_N @ self.counts_NC)

    def each(self) -> list[float]:
        """Score of every sentence by itself."""
        return [self.of_totals(counts_C) for counts_C in self.counts_NC]

    def part(self, rows: Rows) -> Measure:
        """The same metric over some of the sentences."""
        return replace(self, counts_NC=self.counts_NC[rows])


Measures = dict[str, Measure]


def measure(translations: Sequence[str], references: Sequence[str]) -> Measures:
    """BLEU, chrF and TER over translations with one reference each."""
    pairs = list(zip(translations, references, strict=True))
    return {"bleu": _bleu(pairs), "chrf": _chrf(pairs), "ter": _ter(pairs)}


def _bleu(pairs: Sequence[tuple[str, str]]) -> Measure:
    """Columns: length, reference length, then matching and all n-grams by order."""
    from sacrebleu import BLEU

    counter = BLEU(effective_order=True)  # the counts are the same; without it a sentence alone gives a warning
    scores = [counter.sentence_score(one, [reference]) for one, reference in pairs]
    rows = [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores]
    metric = BLEU()

    def of_totals(totals_C: Array) -> float:
        sys_len, ref_len, *counts = totals_C.tolist()
        order = len(counts) // 2
        found = metric.compute_bleu(
            counts[:order],
            counts[order:],
            int(sys_len),
            int(ref_len),
            smooth_method=metric.smooth_method,
            smooth_value=metric.smooth_value,
        )
        return float(found.score)

    return Measure(of_totals, _signature(metric), _counts(rows, 2 + 2 * metric.max_ngram_order))


def _chrf(pairs: Sequence[tuple[str, str]]) -> Measure:
    """Columns: by order, n-grams of the translation, of the reference, and those that match (Popović 2015).

    sacreBLEU keeps these counts private. Tests compare with its scores.
    """
    from sacrebleu import CHRF

    metric = CHRF()
    orders = range(1, metric.char_order + 1)
    rows = []
    for pair in pairs:
        one, reference = ("".join(text.split()) for text in pair)
        row: list[int] = []
        for order in orders:
            made, wanted = _ngrams(one, order), _ngrams(reference, order)
            row += [made.total() if wanted else 0, wanted.total(), (made & wanted).total()]
        rows.append(row)

    def of_totals(totals_C: Array) -> float:
        made_O, wanted_O, right_O = totals_C.reshape(-1, 3).T
        counted_O = (made_O > 0) & (wanted_O > 0)
        if not right_O[counted_O].any():
            return 0.0
        precision = float((right_O[counted_O] / made_O[counted_O]).mean())
        recall = float((right_O[counted_O] / wanted_O[counted_O]).mean())
        weight = metric.beta**2
        return 100 * (1 + weight) * precision * recall / (weight * precision + recall)

    return Measure(of_totals, _signature(metric), _counts(rows, 3 * metric.char_order))


def _ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[place : place + order] for place in range(len(text) - order + 1))


def _ter(pairs: Sequence[tuple[str, str]]) -> Measure:
    """Columns: edits, reference length."""
    from sacrebleu import TER

    metric = TER()
    scores = [metric.sentence_score(one, [reference]) for one, reference in pairs]

    def of_totals(totals_C: Array) -> float:
        edits, length = totals_C.tolist()
        return 100 * (edits / length if length else float(edits > 0))

    return Measure(of_totals, _signature(metric), _counts([[one.num_edits, one.ref_length] for one in scores], 2))


def _signature(metric: Any) -> str:  # sacreBLEU has no types
    metric.corpus_score([""], [[""]])  # tells the metric that there is one reference
    return str(metric.get_signature())


def _counts(rows: Sequence[Sequence[float]], columns: int) -> Array:
    return np.array(rows, dtype=np.float64).reshape(len(rows), columns)


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
