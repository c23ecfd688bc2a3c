"""Labels: scores (accuracy, F1, confusion matrix), loss, class weights, and calibration by temperature scaling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.training.loss import Loss

BINS = 15
"""Number of bins of equal width in the reliability diagram (Guo et al. 2017)."""

Matrix = NDArray[np.float64]
Truth = NDArray[np.bool_]


@dataclass(frozen=True)
class LabelScores:
    """Scores of predicted labels. Accuracy: share of examples for which exactly the correct labels are predicted."""

    accuracy: float
    f1: float
    """Mean F1 of the labels (macro F1)."""
    loss: float
    """Mean negative log-likelihood of the correct labels."""
    calibration_error: float
    """Expected calibration error (ECE): mean difference between the confidence and the accuracy of the model."""
    examples: int
    by_label: dict[str, dict[str, float]] = field(default_factory=dict)
    """Precision, recall, F1 and number of examples of each label."""
    confusion: list[list[int]] | None = None
    """Row: correct label, column: predicted label. None if an example may have several labels."""
    reliability: list[dict[str, float]] = field(default_factory=list)
    """For each bin of confidence: mean confidence, share of correct answers, number of answers."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def score_labels(
    probability_BL: Matrix, target_BL: Truth, labels: Sequence[str], *, several: bool, threshold: float = 0.5
) -> LabelScores:
    """Compare the predicted labels of B examples with the correct ones (`target_BL`); L is the number of labels.

    The most probable label is predicted or, if `several`, every label whose probability is at least `threshold`.
    Precision, recall and F1 are 0 where they are undefined.
    """
    given_BL = probability_BL >= threshold
    if not several:
        given_BL = np.eye(probability_BL.shape[1], dtype=np.bool_)[probability_BL.argmax(1)]
    hits_L = (given_BL & target_BL).sum(0).astype(np.float64)
    given_L, right_L = given_BL.sum(0), target_BL.sum(0)
    f1_L = 2 * hits_L / np.maximum(given_L + right_L, 1)
    precision_L, recall_L = hits_L / np.maximum(given_L, 1), hits_L / np.maximum(right_L, 1)
    by_label = zip(precision_L.tolist(), recall_L.tolist(), f1_L.tolist(), right_L.tolist(), strict=True)
    tiny = np.finfo(np.float64).tiny
    log_likelihood = np.log(np.maximum(probability_BL, tiny))[target_BL].sum()
    if several:  # each label is an answer, yes or no
        log_likelihood += np.log(np.maximum(1 - probability_BL, tiny))[~target_BL].sum()
        sure, right = np.maximum(probability_BL, 1 - probability_BL), (probability_BL >= 0.5) == target_BL
    else:  # the predicted label is the answer
        sure, right = probability_BL.max(1), (given_BL & target_BL).any(1)
    error, bins = reliability(sure.ravel(), right.ravel())
    return LabelScores(
        accuracy=float((given_BL == target_BL).all(1).mean()),
        f1=float(f1_L.mean()),
        loss=float(-log_likelihood / max(len(target_BL), 1)),
        calibration_error=error,
        examples=len(target_BL),
        by_label={
            label: dict(zip(("precision", "recall", "f1", "count"), scores, strict=True))
            for label, scores in zip(labels, by_label, strict=True)
        },
        confusion=None if several else (target_BL.astype(np.int64).T @ given_BL.astype(np.int64)).tolist(),
        reliability=bins,
    )


def reliability(sure: Matrix, right: Truth) -> tuple[float, list[dict[str, float]]]:
    """Expected calibration error (ECE), and the bins of the reliability diagram that are not empty.

    `sure` is the probability that the model gives to each of its answers, `right` whether the answer is correct.
    """
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


def label_loss(
    logits_BL: Tensor, target_BL: Tensor, *, several: bool, smoothing: float = 0.0, weights_L: Tensor | None = None
) -> Loss:
    """Cross-entropy summed over B examples: of a softmax over L labels or, if `several`, of one sigmoid per label.

    Label smoothing gives the share `smoothing` of the target probability to all labels equally or, if `several`, to
    "yes" and "no" equally. `weights_L` has the weight of each label in the loss.
    """
    if logits_BL.dtype != torch.float64:
        logits_BL = logits_BL.float()  # under autocast it may be bfloat16
    count = logits_BL.shape[1]
    if several:
        wanted_BL = target_BL * (1 - smoothing) + smoothing / 2
        loss_BL = F.binary_cross_entropy_with_logits(logits_BL, wanted_BL, reduction="none")
        plain = F.binary_cross_entropy_with_logits(logits_BL.detach(), target_BL, reduction="sum")
    else:
        log_BL = logits_BL.log_softmax(-1)
        loss_BL = -log_BL * (target_BL * (1 - smoothing) + smoothing / count)
        plain = -(log_BL.detach() * target_BL).sum()
    if weights_L is not None:
        # With one label per example, the whole loss of an example has the weight of its label.
        loss_BL = loss_BL * (weights_L if several else (target_BL @ weights_L)[:, None])
    return Loss(loss_BL.sum(dtype=torch.float64), plain.to(torch.float64), len(logits_BL))


def balanced(counts_L: NDArray[np.int64]) -> Tensor:
    """Class weights [L], inversely proportional to `counts_L`: the number of training examples of each of L labels."""
    counts = np.maximum(counts_L, 1).astype(np.float64)
    return torch.tensor(counts_L.sum() / (len(counts) * counts), dtype=torch.float32)


def find_temperature(logits_BL: Tensor, target_BL: Tensor, *, several: bool) -> float | None:
    """Find the softmax temperature that maximizes the likelihood of the correct labels (Guo et al. 2017).

    Returns None for fewer than 30 examples. As in Platt (1999), the target probability of the correct labels is a
    little below 1: otherwise, if all labels are predicted correctly, the lowest temperature would be the best one, and
    all probabilities would become 0 or 1.
    """
    if len(logits_BL) < 30:
        return None
    logits_BL = logits_BL.double()
    doubt = 2 / (len(logits_BL) + 2)

    def negative_log_likelihood(log_temperature: float) -> float:
        scaled_BL = logits_BL / math.exp(log_temperature)
        return float(label_loss(scaled_BL, target_BL, several=several, smoothing=doubt).smoothed)

    low, high = math.log(0.05), math.log(20.0)
    for _ in range(60):  # ternary search: there is one minimum
        one, other = low + (high - low) / 3, high - (high - low) / 3
        if negative_log_likelihood(one) <= negative_log_likelihood(other):
            high = other
        else:
            low = one
    return math.exp((low + high) / 2)


def to_probabilities(logits_BL: Tensor, temperature: float, *, several: bool) -> Tensor:
    """Divide logits by the temperature, then apply a softmax over the L labels or, if `several`, a sigmoid to each."""
    scaled_BL = logits_BL.double() / temperature
    return scaled_BL.sigmoid() if several else scaled_BL.softmax(-1)
