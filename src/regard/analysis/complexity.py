"""Table 1 of the Transformer paper, measured: operations per layer, sequential operations, maximum path length.

The table in "Attention Is All You Need" (Vaswani et al. 2017) compares self-attention, recurrent, convolutional and
restricted self-attention layers for n tokens of width d. Here each entry is measured on a layer of Regard:

- operations: FLOPs, counted while the layer runs on the meta device, where tensors have shapes but no data. As in the
  paper, attention is counted without the projections of queries, keys and values;
- sequential operations: the longest chain of operators in which each needs the result of the one before;
- maximum path length: how many layers must be stacked until every output depends on every input up to its position,
  times the sequential operations of a layer. An output depends on an input if its gradient is not zero. Recurrent and
  convolutional layers look to the left, as in decoders.

Exponents are slopes of a line fitted to the logarithms of lengths and values. The path length of dilated convolutions
grows with log n: its slope is small and decreases with n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.layers.attention import attend, attend_nearby
from regard.layers.operators import count_operations
from regard.layers.rnn_cells import RecurrentLayer

LENGTHS = (64, 128, 256)
WIDTHS = (16, 32, 64)
WINDOW = 16  # r: the number of neighbors of restricted self-attention
KERNEL = 3  # k: the width of convolutions

LayerFunction = Callable[[Tensor], Tensor]
"""Maps [B, n, d] to [B, n, d]."""


@dataclass(frozen=True)
class LayerKind:
    """A row of the table: the values that the theory gives, as text, and a function that builds the layer."""

    layer: str
    operations: str
    sequential: str
    path: str
    make: Callable[[int, int], LayerFunction]
    """make(width, height) builds the layer number `height` (from 0) of a stack."""


def _attention(width: int, height: int) -> LayerFunction:
    def layer(x_BTD: Tensor) -> Tensor:
        x_BHTK = x_BTD.unsqueeze(1)
        return attend(x_BHTK, x_BHTK, x_BHTK).squeeze(1)

    return layer


def _restricted(width: int, height: int) -> LayerFunction:
    def layer(x_BTD: Tensor) -> Tensor:
        x_BHTK = x_BTD.unsqueeze(1)
        return attend_nearby(x_BHTK, x_BHTK, x_BHTK, None, WINDOW).squeeze(1)

    return layer


def _recurrent(width: int, height: int) -> LayerFunction:
    lstm = RecurrentLayer("lstm", width, width, (False,))
    return lambda x_BTD: lstm(x_BTD.transpose(0, 1), None)[0].transpose(0, 1)


def _convolution(width: int, dilation: int) -> LayerFunction:
    filters, left = nn.Conv1d(width, width, KERNEL, dilation=dilation), (KERNEL - 1) * dilation
    return lambda x_BTD: filters(nn.functional.pad(x_BTD.transpose(1, 2), (left, 0))).transpose(1, 2)


LAYER_KINDS = (
    LayerKind("self-attention", "O(n² d)", "O(1)", "O(1)", _attention),
    LayerKind("recurrent (LSTM)", "O(n d²)", "O(n)", "O(n)", _recurrent),
    LayerKind(
        f"convolutional, k = {KERNEL}", "O(k n d²)", "O(1)", "O(n / k)", lambda width, _: _convolution(width, 1)
    ),
    LayerKind(
        f"convolutional, dilated, k = {KERNEL}", "O(k n d²)", "O(1)", "O(log n)",
        lambda width, height: _convolution(width, KERNEL**height),
    ),
    LayerKind(f"restricted self-attention, r = {WINDOW}", "O(r n d)", "O(1)", "O(n / r)", _restricted),
)  # fmt: skip


def complexity_table() -> list[dict[str, Any]]:
    """One row per kind of layer, as data for JSON; takes a few seconds.

    `operations`, `sequential` and `path` are the theory, as text. `operations_exponent` (of n), `width_exponent` (of d,
    in the operations), `sequential_exponent` and `path_exponent` (of n) are measured, at the lengths `lengths`;
    `flops`, `sequential_operations`, `layers` and `path_lengths` are the measured values at these lengths.
    """
    return [_measure(kind) for kind in LAYER_KINDS]


def _measure(kind: LayerKind) -> dict[str, Any]:
    by_length = [_count(kind, length, WIDTHS[0]) for length in LENGTHS]
    by_width = [_count(kind, LENGTHS[0], width)[0] for width in WIDTHS]
    flops, sequential = (list(values) for values in zip(*by_length, strict=True))
    layers = [layers_to_connect(kind, length) for length in LENGTHS]
    paths = [count * depth for count, depth in zip(layers, sequential, strict=True)]
    return {
        "layer": kind.layer,
        "operations": kind.operations,
        "operations_exponent": exponent(LENGTHS, flops),
        "width_exponent": exponent(WIDTHS, by_width),
        "sequential": kind.sequential,
        "sequential_exponent": exponent(LENGTHS, sequential),
        "path": kind.path,
        "path_exponent": exponent(LENGTHS, paths),
        "lengths": list(LENGTHS),
        "flops": flops,
        "sequential_operations": sequential,
        "layers": layers,
        "path_lengths": paths,
    }


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent b for which a size^b fits the values best: the slope of a line through their logarithms."""
    return round(float(np.polyfit(np.log(sizes), np.log(values), 1)[0]), 6) + 0.0  # no -0.0


def _count(kind: LayerKind, length: int, width: int) -> tuple[float, int]:
    """FLOPs and sequential operators of one layer."""
    with torch.device("meta"):
        layer, x_BTD = kind.make(width, 0), torch.empty(1, length, width)
    return count_operations(lambda: layer(x_BTD))


def layers_to_connect(kind: LayerKind, length: int) -> int:
    """The number of layers in a stack until every output depends on every input up to its position."""
    reach_TT, earlier_TT = torch.eye(length), torch.ones(length, length).tril()
    layers = 0
    while bool((reach_TT < earlier_TT).any()):
        if layers > length:
            raise AssertionError(f"{kind.layer}: {layers} layers do not connect {length} positions")
        if layers == 0 or kind.path == "O(log n)":  # the other stacks repeat the first layer
            step_TT = _dependencies(kind.make(4, layers), length).float()
        reach_TT = (step_TT @ reach_TT > 0).float()
        layers += 1
    return layers


def _dependencies(layer: LayerFunction, length: int) -> Tensor:
    """A mask [t, s] that is True if the gradient of output t with respect to input s is not zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        x_TSD = torch.randn(1, length, 4).expand(length, -1, -1).clone().requires_grad_()
    output_TSD = layer(x_TSD)  # row t of the batch gives the gradient of output t
    place = torch.arange(length)
    (gradient_TSD,) = torch.autograd.grad(output_TSD[place, place].sum(), x_TSD)
    return gradient_TSD.abs().sum(-1) > 0
