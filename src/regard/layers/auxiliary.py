"""What layers and the training objective exchange beside the states: losses and statistics of layers, target padding.

A layer calls `add_auxiliary` with a loss of its own, such as the balance loss of experts, and with numbers for the
logs. The training loop collects them by `collect_auxiliary` and adds the losses to the objective, without knowing the
layer. Outside of this block nothing is collected.

A decoder does not get the mask of its target, because causal attention does not need it. Layers that treat padding
separately get it from `target_mask`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch import distributed as dist

from regard.layers.dropout import shared_rows

Statistics = Mapping[str, list[float] | float]
"""Numbers of one layer in one batch, for the logs."""


@dataclass
class Auxiliary:
    """Losses and statistics that the layers of a model added in one forward pass."""

    losses: list[Tensor] = field(default_factory=list)
    """Mean per token, or of that size: the objective adds them to the mean loss per token."""
    statistics: dict[str, Statistics] = field(default_factory=dict)
    """Numbers for the logs, by the name of the layer."""


_collecting: Auxiliary | None = None
_target_mask: Tensor | None = None


@contextmanager
def collect_auxiliary() -> Iterator[Auxiliary]:
    """Within the `with` block, collect the losses and statistics of all layers in the object that this yields."""
    global _collecting
    before, _collecting = _collecting, Auxiliary()
    try:
        yield _collecting
    finally:
        _collecting = before


def is_collecting() -> bool:
    """Whether a block of `collect_auxiliary` is active; outside of it, layers need not compute their losses."""
    return _collecting is not None


def add_auxiliary(layer: str, loss: Tensor, statistics: Statistics) -> None:
    """Add a loss to the training objective, and statistics to the logs; `layer` is the name of the layer."""
    if _collecting is not None:
        _collecting.losses.append(loss)
        _collecting.statistics[layer] = statistics


@contextmanager
def target_padding(mask_BT: Tensor) -> Iterator[None]:
    """Within the `with` block, `target_mask` returns this mask of the target; True for real tokens."""
    global _target_mask
    before, _target_mask = _target_mask, mask_BT
    try:
        yield
    finally:
        _target_mask = before


def target_mask() -> Tensor | None:
    """The mask of the decoder's target, if it is known."""
    return _target_mask


def sum_over_rows(x: Tensor) -> Tensor:
    """Sum `x` over the processes that share the rows of this batch, without a gradient; `x` itself if none do."""
    rows = shared_rows()
    if rows is None or not dist.is_initialized():
        return x
    total = x.detach() * rows.weight
    dist.all_reduce(total)
    return total


def global_sum(x: Tensor) -> Tensor:
    """The value of `sum_over_rows(x)`, with the gradient of `x`.

    The training loop sums the gradients of all processes, so the sum has the gradient of a single process.
    """
    total = sum_over_rows(x)
    return x if total is x else x + (total - x).detach()


def rows_before(counts_BE: Tensor) -> Tensor:
    """For each row of this process, the sum of `counts_BE` over all rows of the whole batch that come before it.

    `counts_BE` has the counts of the rows of this process. With R-Drop, the whole batch has every row twice.
    """
    rows = shared_rows()
    if rows is None or not dist.is_initialized():
        return counts_BE.cumsum(0) - counts_BE
    times = len(counts_BE) // len(rows.index_R)
    index_B = rows.repeated(times).to(counts_BE.device)
    whole = counts_BE.new_zeros(times * rows.total, counts_BE.shape[1])
    if rows.weight:
        whole[index_B] = counts_BE
    dist.all_reduce(whole)
    return (whole.cumsum(0) - whole)[index_B]


def token_total(tokens: int, device: torch.device) -> float:
    """The number of target tokens of the whole batch; `tokens` is the number in the rows of this process."""
    if shared_rows() is None:
        return float(tokens)
    return float(sum_over_rows(torch.tensor(float(tokens), dtype=torch.float64, device=device)))
