"""How good labels are: accuracy, F1, confusion, calibration. Pure functions of probabilities and what was right."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.training.loss import Loss

BINS = 15
"""Of the calibration diagram, equally wide (Guo et al. 2017)."""

Matrix = NDArray[np.float64]
Truth = NDArray[np.bool_]


@dataclass(frozen=True)
class LabelScores:
    """Scores over a set of documents. With several labels a document, accuracy asks for all of them to be right."""

    accuracy: float
    f1: float
    """Mean of the labels' F1: each counts the same, however rare it is."""
    loss: float
    """Mean negative log-likelihood of what was right."""
    calibration_error: float
    """Mean gap between how sure the model was and how often it was right (ECE)."""
    documents: int
    by_label: dict[str, dict[str, float]] = field(default_factory=dict)
    """Precision, recall, F1 and number of documents of each label."""
    confusion: list[list[int]] | None = None
    """Row: the right label, column: the one given. None where there may be several."""
    reliability: list[dict[str, float]] = field(default_factory=list)
    """Bins of probability: mean confidence, share that was right, number of answers."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def score_labels(
    probability_BL: Matrix, target_BL: Truth, labels: Sequence[str], *, several: bool, threshold: float = 0.5
) -> LabelScores:
    """Score the labels that these probabilities give."""
    given_BL = probability_BL >= threshold if several else _highest(probability_BL)
    precision_L, recall_L, f1_L = by_label(given_BL, target_BL)
    counts_L = target_BL.sum(0)
    error, bins = calibration(probability_BL, target_BL, several=several)
    return LabelScores(
        accuracy=float((given_BL == target_BL).all(1).mean()),
        f1=float(f1_L.mean()),
        loss=_surprise(probability_BL, target_BL, several),
        calibration_error=error,
        documents=len(target_BL),
        by_label={
            label: {"precision": float(p), "recall": float(r), "f1": float(f), "documents": int(count)}
            for label, p, r, f, count in zip(labels, precision_L, recall_L, f1_L, counts_L, strict=True)
        },
        confusion=None if several else confusion(given_BL, target_BL).tolist(),
        reliability=bins,
    )


def by_label(given_BL: Truth, target_BL: Truth) -> tuple[Matrix, Matrix, Matrix]:
    """Precision, recall and F1 of each label; 0 where there is nothing to divide by."""
    hits_L = (given_BL & target_BL).sum(0).astype(np.float64)
    given_L, right_L = given_BL.sum(0), target_BL.sum(0)
    return (
        hits_L / np.maximum(given_L, 1),
        hits_L / np.maximum(right_L, 1),
        2 * hits_L / np.maximum(given_L + right_L, 1),
    )


def confusion(given_BL: Truth, target_BL: Truth) -> NDArray[np.int64]:
    """How often each label (row) was taken for each (column)."""
    matrix: NDArray[np.int64] = target_BL.astype(np.int64).T @ given_BL.astype(np.int64)
    return matrix


def calibration(probability_BL: Matrix, target_BL: Truth, *, several: bool) -> tuple[float, list[dict[str, float]]]:
    """Expected calibration error and its bins.

    Of one label a document, the answers are the labels given; of several, every label is a question of its own.
    """
    if several:
        sure = np.maximum(probability_BL, 1 - probability_BL).ravel()
        right = ((probability_BL >= 0.5) == target_BL).ravel()
    else:
        sure, right = probability_BL.max(1), (_highest(probability_BL) & target_BL).any(1)
    return reliability(sure, right)


def reliability(sure: Matrix, right: Truth) -> tuple[float, list[dict[str, float]]]:
    """Expected calibration error of answers that were given with these probabilities, and its bins."""
    place = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    count = np.bincount(place, minlength=BINS)
    confidence = np.bincount(place, sure, minlength=BINS) / np.maximum(count, 1)
    share = np.bincount(place, right.astype(np.float64), minlength=BINS) / np.maximum(count, 1)
    error = float((np.abs(confidence - share) * count).sum() / max(len(sure), 1))
    bins = [
        {"confidence": float(confidence[b]), "right": float(share[b]), "answers": int(count[b])}
        for b in range(BINS)
        if count[b]
    ]
    return error, bins


def _highest(probability_BL: Matrix) -> Truth:
    given_BL = np.zeros(probability_BL.shape, np.bool_)
    given_BL[np.arange(len(probability_BL)), probability_BL.argmax(1)] = True
    return given_BL


def _surprise(probability_BL: Matrix, target_BL: Truth, several: bool) -> float:
    tiny = np.finfo(np.float64).tiny
    right = np.log(np.maximum(probability_BL, tiny))[target_BL].sum()
    wrong = np.log(np.maximum(1 - probability_BL, tiny))[~target_BL].sum() if several else 0.0
    return float(-(right + wrong) / max(len(target_BL), 1))


# Loss of labels: one a document (softmax) or any number (a sigmoid each), smoothed, and weighed by class if asked.


def label_loss(
    logits_BL: Tensor, target_BL: Tensor, *, several: bool, smoothing: float = 0.0, weights_L: Tensor | None = None
) -> Loss:
    """Sums over the documents. `weights_L` say how much each label counts.

    Smoothing spreads its share over all labels; where each is decided on its own, half of it over yes and no.
    """
    if logits_BL.dtype != torch.float64:
        logits_BL = logits_BL.float()  # it may be short under autocast
    count = logits_BL.shape[1]
    if several:
        wanted_BL = target_BL * (1 - smoothing) + smoothing / 2
        surprise_BL = F.binary_cross_entropy_with_logits(logits_BL, wanted_BL, reduction="none")
        plain = F.binary_cross_entropy_with_logits(logits_BL.detach(), target_BL, reduction="sum")
    else:
        log_BL = logits_BL.log_softmax(-1)
        surprise_BL = -log_BL * (target_BL * (1 - smoothing) + smoothing / count)
        plain = -(log_BL.detach() * target_BL).sum()
    if weights_L is not None:
        # With one label a document, all of its surprise counts as its own label does.
        surprise_BL = surprise_BL * (weights_L if several else (target_BL @ weights_L)[:, None])
    return Loss(surprise_BL.sum(dtype=torch.float64), plain.to(torch.float64), len(logits_BL))


def balanced(counts_L: NDArray[np.int64]) -> Tensor:
    """Weights with which every label counts the same over the training data; one that never occurs counts as once."""
    counts = np.maximum(counts_L, 1).astype(np.float64)
    return torch.tensor(counts_L.sum() / (len(counts) * counts), dtype=torch.float32)


# Probabilities that can be taken at their word: scores divided by a temperature found on held-out documents.
#
# Guo et al. 2017: one number, which changes no decision. The likelihood of the right labels has one maximum in it. As
# Platt (1999) has it, the right labels are taken for a little less than sure, the less the fewer documents there are:
# else a handful that are all right would make the temperature as low as can be, and everything sure.


LOWEST, HIGHEST = 0.05, 20.0
ROUNDS = 60
ENOUGH_DOCUMENTS = 30
"""Fewer cannot tell one temperature from another."""


def find_temperature(logits_BL: Tensor, target_BL: Tensor, *, several: bool) -> float | None:
    """The temperature under which the right labels are likeliest; None where there are too few documents."""
    if len(logits_BL) < ENOUGH_DOCUMENTS:
        return None
    logits_BL = logits_BL.double()
    doubt = 2 / (len(logits_BL) + 2)

    def negative_log_likelihood(log_temperature: float) -> float:
        scaled_BL = logits_BL / math.exp(log_temperature)
        return float(label_loss(scaled_BL, target_BL, several=several, smoothing=doubt).smoothed)

    return math.exp(_lowest(negative_log_likelihood, math.log(LOWEST), math.log(HIGHEST)))


def to_probabilities(logits_BL: Tensor, temperature: float, *, several: bool) -> Tensor:
    """Of one label: shares of one; of several: each on its own."""
    scaled_BL = logits_BL.double() / temperature
    return scaled_BL.sigmoid() if several else scaled_BL.softmax(-1)


def _lowest(height: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is lowest: thirds are cut off."""
    for _ in range(ROUNDS):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, other) if height(one) <= height(other) else (one, high)
    return (low + high) / 2
