"""Confidence intervals of scores, and of differences between two systems, by bootstrap resampling (Koehn 2004).

They equal those of `sacrebleu --paired-bs`. sacreBLEU's `PairedTest` is not used because it gives no interval of the
difference, reads the seed from the environment, and keeps all resamples in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float]

SAMPLES, SEED = 1000, 12345
"""Number of resampled test sets, and the random seed; as in sacreBLEU."""
FEW = 20
"""With fewer examples, there are no intervals and p-values, because resampling would not be reliable."""


class Metric(NamedTuple):
    """A score of N examples, stored as C counts for each of them, e.g. numbers of n-grams in a translation, for BLEU.

    The score of any set of the examples is computed from the sums of their counts.
    """

    of_totals: Callable[[Array], float]
    """Computes the score from the sums of the C counts."""
    signature: str
    """Version and settings of the metric, such as sacreBLEU's signature; may be empty."""
    counts_NC: Array
    name: str = ""
    """The name of the score in `Task.scores`, if it is the main score of a task."""
    lower_is_better: bool = False

    def score(self, times_N: Array | None = None) -> float:
        """Return the score of all examples, or of a bootstrap sample that contains example n `times_N[n]` times."""
        return self.of_totals(self.counts_NC.sum(0) if times_N is None else times_N @ self.counts_NC)


def ratio_metric(
    name: str,
    counts: Iterable[tuple[float, float]],
    convert: Callable[[float], float] = float,
    *,
    lower_is_better: bool = False,
) -> Metric:
    """A metric with two counts per example: the sum of the first ones, divided by the sum of the second ones.

    `convert` computes the score from the quotient, e.g. the perplexity from the mean loss.
    """

    def of_totals(totals_C: Array) -> float:
        return convert(float(totals_C[0]) / max(float(totals_C[1]), 1.0))

    return Metric(of_totals, "", np.array(list(counts), dtype=np.float64), name, lower_is_better)


class BootstrapScore(NamedTuple):
    """The score of the test set, and of R bootstrap samples of it; R = 0 if it has fewer than 20 examples."""

    score: float
    resampled_R: Array


def score_all(systems: Sequence[Mapping[str, Metric]]) -> list[dict[str, BootstrapScore]]:
    """Compute the scores of each system on the test set and on bootstrap samples, which all systems share."""
    measures = [one for system in systems for one in system.values()]
    draws, examples = np.random.default_rng(SEED), len(measures[0].counts_NC)
    samples = SAMPLES if examples >= FEW else 0
    resampled = [np.empty(samples) for _ in measures]
    for sample in range(samples):
        drawn = draws.choice(examples, size=examples)
        times_N = np.bincount(drawn, minlength=examples).astype(np.float64)
        for found_R, one in zip(resampled, measures, strict=True):
            found_R[sample] = one.score(times_N)
    found = iter(resampled)
    return [{name: BootstrapScore(one.score(), next(found)) for name, one in system.items()} for system in systems]


def interval(scores_R: Array) -> Interval | None:
    """Return the 95 % confidence interval: the 2.5th and 97.5th percentile of the scores of R bootstrap samples.

    None if R = 0.
    """
    if not len(scores_R):
        return None
    outside, ordered = len(scores_R) // 40, np.sort(scores_R)
    return float(ordered[outside]), float(ordered[-1 - outside])


def p_value(difference: float, difference_R: Array) -> float:
    """Return the two-sided p-value of the paired bootstrap test, computed as in sacreBLEU.

    `difference` is the difference of two systems on the test set, `difference_R` that on R bootstrap samples. The
    p-value is (k + 1) / (R + 1): in k samples, abs(difference_R) - mean(abs(difference_R)) > abs(difference).
    """
    if not difference_R.any():
        return 1.0  # equal outputs; sacreBLEU returns 0.001
    sizes_R = np.abs(difference_R)
    larger = np.count_nonzero(sizes_R - sizes_R.mean() > abs(difference))
    return (int(larger) + 1) / (len(difference_R) + 1)
