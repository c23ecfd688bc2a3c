"""Several models that decode as one: ensembles, and shallow fusion with a language model.

The memory and the state are tuples of the memories and states of the models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from regard.decoding.hypothesis import Tree


class Decodable(Protocol):
    """A model that a search can use: methods `encode`, `start` and `step`, as described in models/base.py."""

    def encode(self, source: Any) -> Tree: ...
    def start(self, memory: Any) -> Tree: ...
    def step(self, token_BW: Tensor, state: Any, memory: Any) -> tuple[Tensor, Tree]: ...


@dataclass(frozen=True)
class Ensemble:
    """Several models with the same vocabulary that decode as one: their probabilities are averaged."""

    members: Sequence[Decodable]
    average: Literal["mean", "log-mean"] = "mean"
    """Mean of the probabilities, or of their logarithms (a geometric mean)."""

    def encode(self, source: Any) -> Tree:
        return tuple(member.encode(source) for member in self.members)

    def start(self, memory: Tree) -> Tree:
        return tuple(member.start(part) for member, part in zip(self.members, memory, strict=True))

    def step(self, token_BW: Tensor, state: Tree, memory: Tree) -> tuple[Tensor, Tree]:
        """One decoding step: log-probabilities [B, W, V] of the next token, averaged over models, and the next states.

        `state` and `memory` are tuples with one entry per model, and so are the returned states.
        """
        logits, states = zip(
            *(member.step(token_BW, *parts) for member, *parts in zip(self.members, state, memory, strict=True)),
            strict=True,
        )
        log_probs = torch.stack([scores_BWV.log_softmax(-1) for scores_BWV in logits])
        if self.average == "log-mean":
            return log_probs.mean(0), states
        return log_probs.logsumexp(0) - math.log(len(self.members)), states


@dataclass(frozen=True)
class ShallowFusion:
    """A decoder and a language model with the same vocabulary that decode as one (Gulcehre et al. 2015).

    The score of a token is its log-probability by the decoder, plus `weight` times that by the language model. These
    scores are not normalized: search with `Tokens(..., normalize=False)`.
    """

    decoder: Decodable
    language_model: Decodable
    weight: float

    def encode(self, source: Any) -> Tree:
        return self.decoder.encode(source), self.language_model.encode(source)

    def start(self, memory: Tree) -> Tree:
        return self.decoder.start(memory[0]), self.language_model.start(memory[1])

    def step(self, token_BW: Tensor, state: Tree, memory: Tree) -> tuple[Tensor, Tree]:
        """One decoding step: the scores [B, W, V] of the next token, and the next states of both models."""
        logits_BWV, first = self.decoder.step(token_BW, state[0], memory[0])
        prior_BWV, second = self.language_model.step(token_BW, state[1], memory[1])
        return logits_BWV.log_softmax(-1).add(prior_BWV.log_softmax(-1), alpha=self.weight), (first, second)
