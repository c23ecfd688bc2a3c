"""Initial weights of projections."""

from __future__ import annotations

from torch import nn

STACKED = "stacked"


def stack(linear: nn.Linear, parts: int) -> nn.Linear:
    """Say that several projections lie one below the other in a layer's matrix, for those who treat each on its own."""
    setattr(linear, STACKED, parts)
    return linear


def stacked(linear: nn.Linear) -> int:
    """How many projections lie in a layer's matrix."""
    return getattr(linear, STACKED, 1)


def glorot(linear: nn.Linear, parts: int = 1) -> nn.Linear:
    """Glorot's uniform spread and zero bias, as the Transformer's first code had them.

    A layer that fuses several projections says how many: each part gets the spread of its own shape.
    """
    for part in stack(linear, parts).weight.chunk(parts):
        nn.init.xavier_uniform_(part)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def silence(linear: nn.Linear) -> None:
    """Let a layer say nothing until it has learnt something."""
    nn.init.zeros_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
