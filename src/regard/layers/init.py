"""Initial weights of linear layers: Glorot (also for matrices of several projections, such as QKV) and zero."""

from __future__ import annotations

from torch import nn

STACKED = "stacked"
"""Attribute of a linear layer: the number of projections in its matrix. The Muon optimizer updates each separately."""


def stack(linear: nn.Linear, parts: int) -> nn.Linear:
    """Mark a layer as one whose matrix contains several projections."""
    setattr(linear, STACKED, parts)
    return linear


def glorot(linear: nn.Linear, parts: int = 1) -> nn.Linear:
    """Glorot's uniform initialisation and zero bias, as in the original code of the Transformer.

    `parts`: the number of projections in the layer; the shape of one projection determines the range.
    """
    for part in stack(linear, parts).weight.chunk(parts):
        nn.init.xavier_uniform_(part)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def zero_init(linear: nn.Linear) -> None:
    """Set weight and bias to zero, so that the output of the layer is zero before the first training step."""
    nn.init.zeros_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
