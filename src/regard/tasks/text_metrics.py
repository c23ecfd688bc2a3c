"""BLEU and chrF of written texts with one reference or several, as in sacreBLEU, with the counts of each text.

The counts make confidence intervals and comparisons possible (`regard.tasks.bootstrap`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.tasks.bootstrap import Array, Metric

References = Sequence[Sequence[str]]
"""For each text, its references: at least one."""


def bleu_metric(texts: Sequence[str], references: References) -> Metric:
    """BLEU of texts.

    Counts of a text: length, reference length, 4 numbers of matching n-grams (n = 1 to 4), 4 numbers of all n-grams.
    """
    from sacrebleu import BLEU

    counter = BLEU(effective_order=True)  # this option avoids warnings and does not change the counts
    scores = [counter.sentence_score(text, list(wanted)) for text, wanted in zip(texts, references, strict=True)]
    rows = [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores]
    metric = BLEU()
    smoothing: dict[str, Any] = {"smooth_method": metric.smooth_method, "smooth_value": metric.smooth_value}

    def of_totals(totals_C: Array) -> float:
        sys_len, ref_len, *counts = totals_C.tolist()
        order = len(counts) // 2
        lengths = int(sys_len), int(ref_len)
        return float(metric.compute_bleu(counts[:order], counts[order:], *lengths, **smoothing).score)

    return Metric(of_totals, signature_of(metric, references), np.array(rows, dtype=np.float64), "bleu")


def chrf_metric(texts: Sequence[str], references: References) -> Metric:
    """The chrF metric (Popović 2015) of texts, with the counts of each text and its best reference.

    The counts are, for n = 1 to 6: character n-grams in the text, in the reference, and matching ones. They are
    computed here because sacreBLEU does not expose them; the score is equal to that of sacreBLEU.
    """
    from sacrebleu import CHRF

    metric = CHRF()

    def of_totals(totals_C: Array) -> float:
        made_O, wanted_O, right_O = totals_C.reshape(-1, 3).T
        counted_O = (made_O > 0) & (wanted_O > 0)
        if not right_O[counted_O].any():
            return 0.0
        precision = float((right_O[counted_O] / made_O[counted_O]).mean())
        recall = float((right_O[counted_O] / wanted_O[counted_O]).mean())
        weight = metric.beta**2
        return 100 * (1 + weight) * precision * recall / (weight * precision + recall)

    def count(text: str, reference: str) -> Array:
        packed = ["".join(one.split()) for one in (text, reference)]
        row: list[int] = []
        for order in range(1, metric.char_order + 1):
            made, wanted = (Counter(one[k : k + order] for k in range(len(one) - order + 1)) for one in packed)
            row += [made.total() if wanted else 0, wanted.total(), (made & wanted).total()]
        return np.array(row, dtype=np.float64)

    rows = [
        max((count(text, one) for one in wanted), key=of_totals) for text, wanted in zip(texts, references, strict=True)
    ]
    return Metric(of_totals, signature_of(metric, references), np.stack(rows), "chrf")


def signature_of(metric: Any, references: References = (("",),)) -> str:  # sacreBLEU has no types
    """The signature of a metric of sacreBLEU, which contains the largest number of references."""
    most = max(map(len, references))
    metric.corpus_score([""], [[""]] * most)  # the signature contains the number of references of the last call
    return str(metric.get_signature())
