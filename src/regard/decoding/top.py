"""The best few of many scores."""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 10
"""Scores in a group; measured on rows of 8,000: a third of the time of one `topk`, and flat between 8 and 25."""


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best of the last axis and their places, best first, like `topk`.

    The best few lie in the groups with the best maxima, and maxima of groups are cheap: only those few groups are
    searched. A row is looked at alone, so that what is in the batch beside it cannot decide between equal scores.
    """
    length = scores.shape[-1]
    groups = length // GROUP
    if groups < 4 * count:
        return scores.topk(count, dim=-1)
    body = scores[..., : groups * GROUP].unflatten(-1, (GROUP, groups))  # a group is a column
    best = body.amax(-2).topk(count, dim=-1, sorted=False).indices
    columns = best.unsqueeze(-2).expand(*best.shape[:-1], GROUP, count)
    places = columns + torch.arange(0, groups * GROUP, groups, device=scores.device)[:, None]
    chosen, places = body.gather(-1, columns).flatten(-2), places.flatten(-2)
    if groups * GROUP < length:
        rest = torch.arange(groups * GROUP, length, device=scores.device).expand(*places.shape[:-1], -1)
        chosen = torch.cat([chosen, scores[..., groups * GROUP :]], dim=-1)
        places = torch.cat([places, rest], dim=-1)
    values, among = chosen.topk(count, dim=-1)
    return values, places.gather(-1, among)
