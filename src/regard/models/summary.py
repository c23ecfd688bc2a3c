"""An architecture in a table: its layers, the shapes of their weights, how many there are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class LayerRow:
    """Layers of one shape: where they stand, how many, and their weights."""

    name: str
    count: int
    shapes: tuple[tuple[int, ...], ...]
    parameters: int
    """Of all of them together."""


def summarise(model: nn.Module) -> list[LayerRow]:
    """One row for each kind of layer; blocks that repeat are counted in one row, e.g.
    "encoder.blocks.*.feed_forward.up".
    """
    rows: dict[tuple[str, tuple[tuple[int, ...], ...]], LayerRow] = {}
    seen: set[int] = set()
    for name, module in model.named_modules():
        own = [parameter for parameter in module.parameters(recurse=False) if id(parameter) not in seen]
        if not own:
            continue
        seen |= {id(parameter) for parameter in own}
        shapes = tuple(tuple(parameter.shape) for parameter in own)
        place = re.sub(r"\.\d+\b", ".*", name)
        before = rows.get((place, shapes), LayerRow(place, 0, shapes, 0))
        size = sum(parameter.numel() for parameter in own)
        rows[place, shapes] = LayerRow(place, before.count + 1, shapes, before.parameters + size)
    return list(rows.values())
