"""Pruned attentions in formats that want one number of heads: the missing ones are filled up with zeros.

A head of zeros looks everywhere alike, finds nothing, and adds nothing: the translations stay the same. What pruning
saved is lost as far as heads are filled up.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from regard.config import Transformer

MAPS = {"self": {"inward": 3}, "cross": {"query": 1, "memory": 2}}
"""The maps whose rows belong to heads, and how many are stacked in each; by kind of attention."""


def fill_heads(settings: Transformer, weights: Mapping[str, Tensor], wanted: Mapping[str, int]) -> dict[str, Tensor]:
    """The weights with so many heads in each attention. Those that are wanted are never fewer than there are."""
    filled = dict(weights)
    for name in settings.attentions:
        kept, missing = settings.heads_in(name), wanted[name] - settings.heads_in(name)
        if missing:
            _fill(filled, name, settings.width, settings.head_width or settings.width // settings.heads, kept, missing)
    return filled


def _fill(weights: dict[str, Tensor], name: str, width: int, head_width: int, kept: int, missing: int) -> None:
    """Put heads of zeros after those that an attention has. One that has none has no maps either."""
    side, layer, kind = name.split(".")
    block = f"encoder.blocks.{layer}" if side == "encoder" else f"decoder.{layer}"
    place = f"{block}.{'attend' if kind == 'self' else 'cross'}"
    for map_name, parts in MAPS[kind].items():
        for part, columns in (("weight", (width,)), ("bias", ())):
            full = f"{place}.{map_name}.{part}"
            there = weights.get(full, torch.zeros(0, *columns)).unflatten(0, (parts, kept, head_width))
            zeros = there.new_zeros(parts, missing, head_width, *columns)
            weights[full] = torch.cat([there, zeros], dim=1).flatten(0, 2)
    outward = weights.get(f"{place}.outward.weight", torch.zeros(width, 0))
    weights[f"{place}.outward.weight"] = torch.cat([outward, outward.new_zeros(width, missing * head_width)], dim=1)
