"""Scores of captions: BLEU, chrF, CIDEr-D (Vedantam et al. 2015), and retrieval by the model's own probabilities."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from regard.tasks.text_metrics import References, bleu_metric, chrf_metric

Json = dict[str, Any]

LONGEST_NGRAM = 4
SIGMA = 6.0
"""CIDEr-D: width of the Gaussian penalty for a difference in length, in words."""
RANKS = (1, 5, 10)

Vector = Mapping[tuple[str, ...], float]


def score_captions(texts: Sequence[str], references: References) -> Json:
    """BLEU, chrF and CIDEr-D of captions with their references, and the signatures of the metrics."""
    bleu, chrf = bleu_metric(texts, references), chrf_metric(texts, references)
    found = {"chrf": chrf.score(), "bleu": bleu.score(), "cider": cider(texts, references)}
    return found | {"signatures": {"bleu": bleu.signature, "chrf": chrf.signature, "cider": "CIDEr-D|sigma:6|n:4"}}


# ---------------------------------------------------------------------------------------------------------------------
# CIDEr-D


def cider(texts: Sequence[str], references: References) -> float:
    """CIDEr-D of captions, from 0 to 10: the mean over the pictures (Vedantam et al. 2015, section 6).

    An n-gram counts the more, the fewer pictures have it in their references. As in the authors' program, the number of
    times that an n-gram occurs in a caption is not divided by the length of the caption, words are in lower case, and
    punctuation is left out. (Their program counts bigrams as the length, and does not stem either.)
    """
    each = cider_scores(texts, references)
    return math.fsum(each) / max(len(each), 1)


def cider_scores(texts: Sequence[str], references: References) -> list[float]:
    """CIDEr-D of each caption. Its weights of n-grams depend on the references of all pictures."""
    wanted = [[_split(one) for one in several] for several in references]
    frequency: Counter[tuple[str, ...]] = Counter()
    for several in wanted:
        frequency.update({ngram for words in several for size in _SIZES for ngram in _ngrams(words, size)})
    everything = math.log(max(len(wanted), 1))

    def vectors(words: list[str]) -> list[Vector]:
        """For each size of n-grams, the counts times the inverse document frequencies."""
        return [
            {ngram: count * (everything - math.log(max(frequency[ngram], 1))) for ngram, count in found.items()}
            for found in (Counter(_ngrams(words, size)) for size in _SIZES)
        ]

    scores = []
    for text, several in zip(texts, wanted, strict=True):
        words = _split(text)
        own, total = vectors(words), 0.0
        for other in several:
            penalty = math.exp(-((len(words) - len(other)) ** 2) / (2 * SIGMA**2))
            total += penalty * math.fsum(map(_similarity, own, vectors(other)))
        scores.append(10 * total / (LONGEST_NGRAM * len(several)))
    return scores


_SIZES = range(1, LONGEST_NGRAM + 1)


def _split(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _ngrams(words: Sequence[str], size: int) -> Iterable[tuple[str, ...]]:
    return (tuple(words[start : start + size]) for start in range(len(words) - size + 1))


def _similarity(own: Vector, wanted: Vector) -> float:
    """The cosine of two vectors, in which no n-gram of the caption counts more often than in the reference."""
    norms = math.sqrt(math.fsum(x * x for x in own.values()) * math.fsum(x * x for x in wanted.values()))
    product = math.fsum(min(weight, wanted.get(ngram, 0.0)) * wanted.get(ngram, 0.0) for ngram, weight in own.items())
    return product / norms if norms else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Retrieval


def recall(scores_NM: Tensor, right_M: Sequence[int]) -> dict[str, float]:
    """For M captions, how often the right one of N pictures is among the 1, 5 and 10 best: recall@1, @5 and @10.

    `scores_NM`: the score of each caption for each picture. `right_M`: the index of the right picture of each caption.
    Of pictures with equal scores, the right one is the last.
    """
    own_M = scores_NM[list(right_M), range(len(right_M))]
    rank_M = (scores_NM >= own_M).sum(0)
    return {f"recall_{rank}": float((rank_M <= rank).double().mean()) for rank in RANKS}
