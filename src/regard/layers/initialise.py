"""Initial weights of projections."""

from __future__ import annotations

from torch import nn


def glorot(linear: nn.Linear, parts: int = 1) -> nn.Linear:
    """Glorot's uniform spread and zero bias, as the Transformer's first code had them.

    A layer that fuses several projections says how many: each part gets the spread of its own shape.
    """
    for part in linear.weight.chunk(parts):
        nn.init.xavier_uniform_(part)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear
