"""Loss of labels against PyTorch's own."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.tasks.labels import balanced, label_loss

LOGITS = torch.tensor([[1.0, -0.5, 0.2], [0.3, 0.3, -2.0], [-1.0, 2.0, 0.0], [0.1, 0.2, 0.3]])
RIGHT = torch.tensor([0, 2, 1, 1])
ONE_HOT = F.one_hot(RIGHT, 3).float()
WEIGHTS = torch.tensor([0.5, 2.0, 1.0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_one_label_equals_cross_entropy(smoothing):
    found = label_loss(LOGITS, ONE_HOT, several=False, smoothing=smoothing)
    expected = F.cross_entropy(LOGITS, RIGHT, label_smoothing=smoothing, reduction="sum")
    assert float(found.smoothed) == pytest.approx(float(expected), rel=1e-6)
    assert float(found.plain) == pytest.approx(float(F.cross_entropy(LOGITS, RIGHT, reduction="sum")), rel=1e-6)
    assert found.tokens == 4


def test_classes_are_weighed():
    found = label_loss(LOGITS, ONE_HOT, several=False, weights_L=WEIGHTS)
    expected = F.cross_entropy(LOGITS, RIGHT, weight=WEIGHTS, reduction="sum")
    assert float(found.smoothed) == pytest.approx(float(expected), rel=1e-6)


def test_several_labels_equal_binary_cross_entropy():
    target = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    found = label_loss(LOGITS, target, several=True, weights_L=WEIGHTS)
    expected = F.binary_cross_entropy_with_logits(LOGITS, target, weight=WEIGHTS, reduction="sum")
    assert float(found.smoothed) == pytest.approx(float(expected), rel=1e-6)
    smoothed = label_loss(LOGITS, target, several=True, smoothing=0.2)
    wanted = F.binary_cross_entropy_with_logits(LOGITS, 0.8 * target + 0.1, reduction="sum")
    assert float(smoothed.smoothed) == pytest.approx(float(wanted), rel=1e-6)


def test_balanced_weights_let_every_label_count_the_same():
    """As scikit-learn's class_weight="balanced": n / (labels * count)."""
    counts = np.array([90, 9, 1])
    weights = balanced(counts)
    assert weights.tolist() == pytest.approx([100 / 270, 100 / 27, 100 / 3])
    assert (weights * torch.tensor(counts)).tolist() == pytest.approx([100 / 3] * 3)
    assert balanced(np.array([4, 0])).isfinite().all()
