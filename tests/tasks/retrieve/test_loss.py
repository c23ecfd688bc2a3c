"""In-batch negatives: the loss against PyTorch's cross-entropy, and what does not compete."""

import pytest
import torch
from torch.nn import functional as F

from regard.tasks.retrieve.training import contrastive_loss


def unit(*shape):
    return F.normalize(torch.randn(*shape, dtype=torch.float64), dim=-1)


def test_it_is_cross_entropy_in_both_directions():
    one, other = unit(5, 8), unit(5, 8)
    scores, right = one @ other.T / 0.1, torch.arange(5)
    expected = (F.cross_entropy(scores, right, reduction="sum") + F.cross_entropy(scores.T, right, reduction="sum")) / 2
    loss = contrastive_loss(one, other, right, 0.1)
    assert float(loss.smoothed) == pytest.approx(float(expected), rel=1e-5)
    assert float(loss.plain) == float(loss.smoothed)
    assert loss.tokens == 5


def test_pairs_with_one_answer_do_not_compete():
    one, other = unit(4, 8), unit(4, 8)
    group = torch.tensor([0, 1, 0, 2])
    loss = contrastive_loss(one, other, group, 0.1)
    own = contrastive_loss(one[:1], other[:1], group[:1], 0.1).smoothed
    assert float(own) == pytest.approx(0.0, abs=1e-6)  # alone, there is nothing to mistake it for
    # Row 0 against the others without row 2, and so on: by leaving out, pair by pair.
    scores = one.float() @ other.T.float() / 0.1
    by_hand = 0.0
    for place in range(4):
        seen = [rival for rival in range(4) if rival == place or group[rival] != group[place]]
        by_hand += float(
            (scores[place, seen].logsumexp(0) + scores[seen, place].logsumexp(0)) / 2 - scores[place, place]
        )
    assert float(loss.smoothed) == pytest.approx(by_hand, rel=1e-5)


def test_it_pulls_partners_together():
    one = unit(6, 4).requires_grad_()
    other = unit(6, 4)
    group = torch.arange(6)
    before = float(contrastive_loss(one, other, group, 0.2).plain)
    contrastive_loss(one, other, group, 0.2).smoothed.backward()
    with torch.no_grad():
        nearer = F.normalize(one - 0.05 * one.grad, dim=-1)
    assert float(contrastive_loss(nearer, other, group, 0.2).smoothed) < before
