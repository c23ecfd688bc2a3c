"""Several models as one: an ensemble is another `encode`, `start` and `step`, whose memory and state are tuples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from regard.decoding.hypothesis import Tree

Mixing = Literal["mean", "log-mean"]
"""Mean of the probabilities, or of their logarithms (a geometric mean)."""


class Decodable(Protocol):
    """What search asks of a model."""

    def encode(self, source: Any) -> Tree:
        """Read the source."""

    def start(self, memory: Any) -> Tree:
        """The state before the first token."""

    def step(self, token_BW: Tensor, state: Any, memory: Any) -> tuple[Tensor, Tree]:
        """Scores of the next token, and the state from there."""


@dataclass(frozen=True)
class Ensemble:
    """Models with one vocabulary that speak with one voice."""

    members: tuple[Decodable, ...]
    mixing: Mixing = "mean"

    def encode(self, source: Any) -> Tree:
        """Each member reads the source."""
        return tuple(member.encode(source) for member in self.members)

    def start(self, memory: Tree) -> Tree:
        """Where each member starts."""
        return tuple(member.start(part) for member, part in zip(self.members, memory, strict=True))

    def step(self, token_BW: Tensor, state: Tree, memory: Tree) -> tuple[Tensor, Tree]:
        """Log-probabilities of the next token, mixed, and the states from there."""
        logits, states = zip(
            *(member.step(token_BW, *parts) for member, *parts in zip(self.members, state, memory, strict=True)),
            strict=True,
        )
        log_probs = torch.stack([scores_BWV.log_softmax(-1) for scores_BWV in logits])
        if self.mixing == "log-mean":
            return log_probs.mean(0), states
        return log_probs.logsumexp(0) - math.log(len(self.members)), states


def ensemble(members: Sequence[Decodable], mixing: Mixing = "mean") -> Ensemble:
    """Several models as one; they must have one vocabulary."""
    return Ensemble(tuple(members), mixing)
