"""Many states into one: a learnt context vector asks which of them matter, or all of them count the same."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.attention import DotProductScore, attend
from regard.layers.hooks import AttentionHook
from regard.layers.init import glorot

DOT = DotProductScore()
SHARPNESS = 4.0
"""Of the first weights: nearly even ones learn to differ late, sharp ones learn less (docs/log.md)."""


class AttentionPooling(nn.Module):
    """u = tanh(W h + b), weights softmax(u . c), sum of the h (Yang et al. 2016): c is learnt, the same for all."""

    def __init__(self, width: int, name: str):
        super().__init__()
        self.key = glorot(nn.Linear(width, width))
        self.context = nn.Parameter(torch.randn(width) * SHARPNESS * width**-0.5)
        self.tap = AttentionHook(name)

    def keys(self, x: Tensor) -> Tensor:
        """What the context vector is compared with, of states in any layout."""
        return torch.tanh(self.key(x))

    def forward(self, x_NSD: Tensor, key_NSD: Tensor, mask_NS: Tensor | None) -> Tensor:
        """One state [N, D] for each sequence."""
        query = self.context.expand(x_NSD.shape[0], 1, 1, -1)
        mask = None if mask_NS is None else mask_NS[:, None, None, :]
        return attend(query, key_NSD.unsqueeze(1), x_NSD.unsqueeze(1), mask, score=DOT, tap=self.tap).flatten(1)


class MeanPooling(nn.Module):
    """All real states count the same. Also an attention: of a query that matches every key alike."""

    def __init__(self, name: str):
        super().__init__()
        self.tap = AttentionHook(name)

    def keys(self, x: Tensor) -> Tensor:
        """Nothing to compare."""
        return torch.zeros_like(x[..., :1])

    def forward(self, x_NSD: Tensor, key_NSD: Tensor, mask_NS: Tensor | None) -> Tensor:
        """One state [N, D] for each sequence."""
        query = x_NSD.new_zeros(x_NSD.shape[0], 1, 1, 1)
        mask = None if mask_NS is None else mask_NS[:, None, None, :]
        return attend(query, key_NSD.unsqueeze(1), x_NSD.unsqueeze(1), mask, score=DOT, tap=self.tap).flatten(1)
