"""Selecting rows of a memory and beams of a state, whatever tree of tensors they are.

A branch may bring its own `keep(rows_N)` and `follow(beams_BW)`, which then stand for doing it tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Tree = Any


def keep_rows(tree: Tree, rows_N: Tensor) -> Tree:
    """Only these sentences of a batch."""
    return _map(
        lambda leaf: leaf.index_select(0, rows_N),
        tree,
        lambda branch: branch.keep(rows_N) if hasattr(branch, "keep") else None,
    )


def follow_beams(tree: Tree, beams_BW: Tensor) -> Tree:
    """Each new hypothesis continues the state of the old one it came from. Old and new may differ in number."""
    rows, width = beams_BW.shape

    def follow(leaf: Tensor) -> Tensor:
        first = torch.arange(rows, device=leaf.device)[:, None] * leaf.shape[1]
        chosen = leaf.flatten(0, 1).index_select(0, (first + beams_BW).flatten())
        return chosen.view(rows, width, *leaf.shape[2:])

    return _map(follow, tree, lambda branch: branch.follow(beams_BW) if hasattr(branch, "follow") else None)


def _map(change: Callable[[Tensor], Tensor], tree: Tree, own_way: Callable[[Tree], Tree | None]) -> Tree:
    if isinstance(tree, Tensor):
        return change(tree)
    if (done := own_way(tree)) is not None:
        return done
    if isinstance(tree, dict):
        return {key: _map(change, branch, own_way) for key, branch in tree.items()}
    if isinstance(tree, tuple):
        branches = [_map(change, branch, own_way) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return tree
