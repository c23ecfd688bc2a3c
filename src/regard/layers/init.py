"""Glorot initialization of linear layers, also of matrices that contain several projections, such as QKV."""

from __future__ import annotations

from torch import nn

STACKED = "stacked"
"""Attribute of a linear layer: the number of projections in its matrix. Muon updates each projection separately."""


def stack(linear: nn.Linear, parts: int) -> nn.Linear:
    """Record that the weight matrix of `linear` has `parts` projections, stacked along its rows; return `linear`."""
    setattr(linear, STACKED, parts)
    return linear


def glorot(linear: nn.Linear, parts: int = 1) -> nn.Linear:
    """Initialize `linear`: each of its `parts` stacked projections by Glorot's uniform rule, its bias with zeros."""
    for part in stack(linear, parts).weight.chunk(parts):
        nn.init.xavier_uniform_(part)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear
