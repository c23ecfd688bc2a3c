"""FLOPs of any model: torch counts them while the model runs on the meta device, where tensors have shapes but no data.

A multiplication and an addition are two operations. Looking up an embedding costs nothing.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.models.base import Network


class Cost(dict[str, float]):
    """FLOPs of one forward pass for each unit of the input (a token, a pair of tokens, ...), by the name of the unit.

    For example, `cost["source_token"]` is the number of FLOPs per source token. `Network.examples` names the units.
    """

    def forward(self, **amounts: float) -> float:
        """FLOPs of a forward pass on a batch; `amounts`: how many of each unit the batch has, e.g. source_token=90."""
        return sum(self[unit] * amount for unit, amount in amounts.items())

    def training(self, **amounts: float) -> float:
        return 3 * self.forward(**amounts)  # the backward pass computes two products for each of the forward pass


def pair_amounts(rows: int, source_length: int, target_length: int) -> dict[str, int]:
    """The arguments of `Cost.forward` for a padded batch of `rows` sentence pairs: the number of each unit."""
    return {
        "sentence": rows,
        "source_token": rows * source_length,
        "target_token": rows * target_length,
        "source_pair": rows * source_length**2,
        "target_pair": rows * target_length**2,
        "cross_pair": rows * source_length * target_length,
    }


_COUNTED: WeakKeyDictionary[nn.Module, Cost] = WeakKeyDictionary()


def count_cost(model: Network) -> Cost:
    """Count the FLOPs of a model for each unit of the input; the result is cached.

    The model runs on the small inputs of `Network.examples`. Each gives one linear equation, whose unknowns are the
    FLOPs per unit. The inputs are short, so local attention counts as full attention, and a conversation has one turn.
    """
    if model not in _COUNTED:
        examples = list(without_data(model).examples())
        units = list(examples[0].amounts)
        amounts_EU = np.array([[example.amounts[unit] for unit in units] for example in examples], np.float64)
        counts_E = np.array([_count(example.run) for example in examples], np.float64)
        per_unit_U = np.rint(np.linalg.solve(amounts_EU, counts_E)).tolist()  # operations are whole numbers
        _COUNTED[model] = Cost(zip(units, per_unit_U, strict=True))
    return _COUNTED[model]


AnyNetwork = TypeVar("AnyNetwork", bound=Network)


def without_data(model: AnyNetwork, *, gradients: bool = False) -> AnyNetwork:
    """A copy of the model on the meta device, in evaluation mode. Tied weights stay tied; no data is copied."""
    memo: dict[int, Any] = {}
    for tensor in chain(model.parameters(), model.buffers()):
        empty = torch.empty_like(tensor, device="meta", requires_grad=False)
        memo[id(tensor)] = nn.Parameter(empty, requires_grad=gradients) if isinstance(tensor, nn.Parameter) else empty
    return deepcopy(model, memo).eval()


def _count(run: Any) -> float:
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:  # a fused kernel would not be counted
        run()
    return float(counter.get_total_flops())
