"""Pooling of a sequence of states into one: attention with a learned query, or the mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.layers.attention import DotProductScore, attend
from regard.layers.hooks import AttentionHook
from regard.layers.init import glorot

DOT = DotProductScore()
SHARPNESS = 4.0
"""Scale of the initial context vector: lower values learn later, higher ones learn less (docs/log.md)."""


class AttentionPooling(nn.Module):
    """u = tanh(W h + b), weights softmax(u . c), weighted sum of h (Yang et al. 2016); c is a learned vector."""

    def __init__(self, width: int, name: str):
        super().__init__()
        self.key = glorot(nn.Linear(width, width))
        self.context = nn.Parameter(torch.randn(width) * SHARPNESS * width**-0.5)
        self.tap = AttentionHook(name)

    def keys(self, x: Tensor) -> Tensor:
        """The keys of states of any shape [..., D]."""
        return torch.tanh(self.key(x))

    def forward(self, x_NSD: Tensor, key_NSD: Tensor, mask_NS: Tensor | None) -> Tensor:
        """One state [N, D] per sequence."""
        query = self.context.expand(x_NSD.shape[0], 1, 1, -1)
        mask = None if mask_NS is None else mask_NS[:, None, None, :]
        return attend(query, key_NSD.unsqueeze(1), x_NSD.unsqueeze(1), mask, score=DOT, tap=self.tap).flatten(1)


class MeanPooling(nn.Module):
    """The mean of all real states, computed as attention with equal scores, so that it has a hook too."""

    def __init__(self, name: str):
        super().__init__()
        self.tap = AttentionHook(name)

    def keys(self, x: Tensor) -> Tensor:
        """Keys of width one, all zero."""
        return torch.zeros_like(x[..., :1])

    def forward(self, x_NSD: Tensor, key_NSD: Tensor, mask_NS: Tensor | None) -> Tensor:
        """One state [N, D] per sequence."""
        query = x_NSD.new_zeros(x_NSD.shape[0], 1, 1, 1)
        mask = None if mask_NS is None else mask_NS[:, None, None, :]
        return attend(query, key_NSD.unsqueeze(1), x_NSD.unsqueeze(1), mask, score=DOT, tap=self.tap).flatten(1)
