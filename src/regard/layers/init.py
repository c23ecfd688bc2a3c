"""Initial weights of linear layers: Glorot (also for matrices of several projections, such as QKV) and zero."""

from __future__ import annotations

from torch import nn

STACKED = "stacked"
"""Attribute of a linear layer: the number of projections in its matrix. Muon treats each by itself."""


def stack(linear: nn.Linear, parts: int) -> nn.Linear:
    """Record that the matrix of a layer contains several projections."""
    setattr(linear, STACKED, parts)
    return linear


def glorot(linear: nn.Linear, parts: int = 1) -> nn.Linear:
    """Glorot's uniform initialisation and zero bias, as in the first code of the Transformer.

    `parts`: the number of projections in the layer; each is initialised by its own shape.
    """
    for part in stack(linear, parts).weight.chunk(parts):
        nn.init.xavier_uniform_(part)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def zero_init(linear: nn.Linear) -> None:
    """Set weight and bias to zero, so that the layer has no output before the first step."""
    nn.init.zeros_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
