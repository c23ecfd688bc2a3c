"""The loss of encoders that shall bring together what belongs together: in-batch negatives."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.training.loss import Loss


def contrast(one_BV: Tensor, other_BV: Tensor, group_B: Tensor, temperature: float) -> Loss:
    """How surely each text is told to belong to its partner, among the partners of all others; and the other way round.

    Vectors have length one. Pairs of one group (questions with the same answer) do not compete with each other.
    """
    scores_BB = (one_BV @ other_BV.mT).float() / temperature
    same_BB = group_B[:, None] == group_B[None, :]
    own_BB = torch.eye(len(group_B), dtype=torch.bool, device=group_B.device)
    scores_BB = scores_BB.masked_fill(same_BB & ~own_BB, float("-inf"))
    surprise_B = (scores_BB.logsumexp(1) + scores_BB.logsumexp(0)) / 2 - scores_BB.diagonal()
    total = surprise_B.sum(dtype=torch.float64)
    return Loss(total, total.detach(), len(group_B))
