"""Loss of labels: one a document (softmax) or any number (a sigmoid each), smoothed, and weighed by class if asked."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.training.loss import Loss


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
