"""A moving average of the weights: what is validated and kept. It is better than any single point of the path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """Exponential moving average. Early on its memory is short, so that the random start is soon forgotten."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.names = [name for name, _ in model.named_parameters()]
        self.live: list[Tensor] = list(model.parameters())
        self.shadow: list[Tensor] = [parameter.detach().clone() for parameter in self.live] if decay else self.live

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after update `step`, counted from 1."""
        if self.decay:
            decay = min(self.decay, (1 + step) / (10 + step))
            torch._foreach_lerp_(self.shadow, self.live, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model holds the averaged weights for the length of the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def named(self) -> dict[str, Tensor]:
        """The averaged weights by name."""
        return {name: tensor.detach() for name, tensor in zip(self.names, self.shadow, strict=True)}

    def _swap(self) -> None:
        if self.decay:
            for parameter, other in zip(self.live, self.shadow, strict=True):
                parameter.data, other.data = other.data, parameter.data
