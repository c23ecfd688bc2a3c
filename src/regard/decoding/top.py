"""The best few of many scores."""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 10
"""Scores in a group; measured on vocabularies of 6,000 to 32,000: flat between 8 and 16."""


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best of the last axis and their places, best first, like `topk`."""
    rows_NV = scores.reshape(-1, 1, scores.shape[-1])
    best_NC, place_NC = top_sums(rows_NV.new_zeros(rows_NV.shape[:2]), rows_NV, count)
    return best_NC.view(*scores.shape[:-1], -1), place_NC.view(*scores.shape[:-1], -1)


def top_sums(total_NW: Tensor, scores_NWV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best of `total + score` over all W and V of a row, best first, and their places in W V.

    The best few lie in the groups with the best maxima, and maxima of groups are cheap: only those few groups are
    searched, and no sum is made that is not looked at. A row is looked at alone, so that what is in the batch beside it
    cannot decide between equal scores.
    """
    width, length = scores_NWV.shape[1:]
    groups = length // GROUP
    if width * groups < 4 * count:
        return (total_NW[:, :, None] + scores_NWV).flatten(1).topk(count, dim=-1)
    grouped = groups * GROUP
    maxima_NWG = scores_NWV[:, :, :grouped].unflatten(-1, (GROUP, groups)).amax(-2)  # a group is a column
    _, best_NC = top((total_NW[:, :, None] + maxima_NWG).flatten(1), count)
    first_NC = best_NC // groups * length + best_NC % groups
    device = scores_NWV.device
    place_NP = (first_NC[:, :, None] + torch.arange(0, grouped, groups, device=device)).flatten(1)
    if grouped < length:  # what is left over belongs to no group
        first_W1 = torch.arange(0, width * length, length, device=device)[:, None]
        rest = (first_W1 + torch.arange(grouped, length, device=device)).flatten()
        place_NP = torch.cat([place_NP, rest.expand(len(place_NP), -1)], dim=-1)
    sum_NP = total_NW.gather(1, place_NP // length) + scores_NWV.flatten(1).gather(1, place_NP)
    best_sum_NC, among_NC = sum_NP.topk(count, dim=-1)
    return best_sum_NC, place_NP.gather(1, among_NC)
