"""Dropout with fast random numbers: one 64-bit random number for eight elements.

PyTorch's `bernoulli_` takes a fifth of a training step on a CPU. Here the rate is rounded to a multiple of 1/256 and
the kept elements are multiplied by 1 / (1 - rounded rate), so that the expectation is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import ModelError


class Rows(NamedTuple):
    """The indices of the batch rows that one of several training processes computes, and the size of the batch."""

    index_R: Tensor
    total: int
    """Number of rows of the whole batch."""
    weight: float = 1.0
    """0 if the batch has no row for this process; it then computes row 0, only to take part in the communication."""

    @classmethod
    def every_nth(cls, total: int, first: int, every: int) -> Rows:
        """The rows first, first + every, ... of a batch of `total` rows; if there are none, row 0 with weight 0."""
        if first >= total:
            return cls(torch.zeros(1, dtype=torch.long), total, weight=0.0)
        return cls(torch.arange(first, total, every), total)

    def repeated(self, times: int) -> Tensor:
        """The indices of the rows in a batch that has all rows `times` times, one whole batch after the other."""
        return torch.cat([self.index_R + repeat * self.total for repeat in range(times)])


_shared: Rows | None = None


@contextmanager
def dropout_rows(rows: Rows | None) -> Iterator[None]:
    """Within the `with` block, draw dropout masks for the whole batch, and use only the rows `rows` of each mask.

    So a row gets the same mask whether one process or several processes compute the batch. With None, the input of
    dropout is the whole batch.
    """
    global _shared
    before, _shared = _shared, rows
    try:
        yield
    finally:
        _shared = before


def shared_rows() -> Rows | None:
    """The rows that this process computes, if processes share the rows of the current batch."""
    return _shared


def batch_seed(seed: int, position: int) -> int:
    """The random seed of batch number `position`: a hash, so that random numbers of different batches are unrelated."""
    mixed = (seed * 0x9E3779B97F4A7C15 + position * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 31)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (mixed ^ (mixed >> 29)) & (2**63 - 1)


def keep_mask(shape: torch.Size, dropped: int, device: torch.device) -> Tensor:
    """A random boolean mask that is False with probability `dropped / 256`; uses PyTorch's default random generator."""
    count = shape.numel()
    draws = torch.empty(-(-count // 8), dtype=torch.int64, device=device)
    draws.random_(torch.iinfo(torch.int64).min, None)  # all 64 bits; the default range leaves the sign bit zero
    return (draws.view(torch.uint8)[:count] >= dropped).view(shape)


def draw_for_rows(shape: torch.Size, axis: int, draw: Callable[[torch.Size], Tensor]) -> Tensor:
    """Random numbers of this shape from `draw(shape)`: the same for a row whether or not processes share the batch.

    If they do, draw for the whole batch, and select the rows of this process along the batch axis `axis`. `shape` is
    the shape of the part that this process computes. With R-Drop, it has every row twice.
    """
    rows = _shared
    if rows is None:
        return draw(shape)
    times, rest = divmod(shape[axis], len(rows.index_R))
    if rest:
        raise ModelError(
            f"dropout: axis {axis} of the shape {tuple(shape)} is not a batch of {len(rows.index_R)} rows;"
            " pass the index of the batch axis: Dropout(rate, rows=...)"
        )
    whole = list(shape)
    whole[axis] = times * rows.total
    drawn = draw(torch.Size(whole))
    return drawn.index_select(axis, rows.repeated(times).to(drawn.device))


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, dropped: int, axis: int) -> Tensor:
        mask = draw_for_rows(x.shape, axis, lambda shape: keep_mask(shape, dropped, x.device))
        context.save_for_backward(mask)
        context.scale = 256 / (256 - dropped)
        return x.mul(context.scale).mul_(mask)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = context.saved_tensors
        return gradients[0].mul(context.scale).mul_(mask), None, None


class Dropout(nn.Module):
    """Sets a share of the elements to zero in training and scales the others, so that the expectation is the same."""

    def __init__(self, rate: float, rows: int = 0):
        """`rate` is the share of elements to set to zero; `rows` is the index of the batch axis of the input."""
        super().__init__()
        self.dropped = min(round(rate * 256), 255)  # some elements must remain
        self.rows = rows
        self.strength = 1.0

    def forward(self, x: Tensor) -> Tensor:
        dropped = round(self.dropped * self.strength)
        if not (self.training and dropped):
            return x
        return _Drop.apply(x, dropped, self.rows)  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        return f"rate={self.dropped / 256:.3g}"


def set_dropout_strength(model: nn.Module, strength: float) -> None:
    """Multiply the rates of all dropout layers of a model by `strength`: 0 is no dropout, 1 the full rate."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.strength = strength
