"""Selecting rows of a memory and beams of a state, whatever tree of tensors they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Tree = Any


def map_tensors(change: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """The same tree with every tensor changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: map_tensors(change, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple):
        branches = [map_tensors(change, branch) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return tree


def keep_rows(tree: Tree, rows_N: Tensor) -> Tree:
    """Only these sentences of a batch."""
    return map_tensors(lambda leaf: leaf.index_select(0, rows_N), tree)


def follow_beams(tree: Tree, beams_BW: Tensor) -> Tree:
    """Each new hypothesis continues the state of the old one it came from. Old and new may differ in number."""
    rows, width = beams_BW.shape

    def follow(leaf: Tensor) -> Tensor:
        first = torch.arange(rows, device=leaf.device)[:, None] * leaf.shape[1]
        chosen = leaf.flatten(0, 1).index_select(0, (first + beams_BW).flatten())
        return chosen.view(rows, width, *leaf.shape[2:])

    return map_tensors(follow, tree)
