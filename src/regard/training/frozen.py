"""Rows of weight matrices that training does not change, such as embeddings taken from a file of word vectors.

The other rows of the same matrix are trained. Frozen rows stay equal bit for bit, whatever the optimizer, the weight
decay and the average of the weights do, and also after training was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from regard.models.base import Network
from regard.training.averaging import WeightAverage


class FrozenRows:
    """The frozen rows of a model: indices by the name of the parameter."""

    def __init__(self, model: Network, rows: Mapping[str, Sequence[int]]):
        named = dict(model.named_parameters())
        self._rows = {
            name: (named[name], torch.tensor(index, dtype=torch.long, device=named[name].device))
            for name, index in rows.items()
        }

    def clear_gradients(self) -> None:
        """Set the gradients of the frozen rows to zero, so that they do not count in the norm of the gradient."""
        for parameter, index in self._rows.values():
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
                frozen = torch.isin(parameter.grad.indices()[0], index)
                parameter.grad.values()[frozen] = 0.0
            else:
                parameter.grad[index] = 0.0

    @contextmanager
    def kept(self) -> Iterator[None]:
        """At the end of the `with` block, a step of the optimizer, give the frozen rows their values again."""
        before = [(parameter, index, parameter.detach()[index]) for parameter, index in self._rows.values()]
        yield
        with torch.no_grad():
            for parameter, index, values in before:
                parameter[index] = values

    @torch.no_grad()
    def correct(self, average: WeightAverage) -> None:
        """Copy the frozen rows into the averaged weights: the mean of equal numbers may differ by rounding."""
        averages: dict[str, Tensor] = average.named() if self._rows else {}
        for name, (parameter, index) in self._rows.items():
            averages[name][index] = parameter[index]
