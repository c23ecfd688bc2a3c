"""The coverage penalty (Wu et al. 2016): source tokens that no output token looked at make a hypothesis worse.

cp = weight * sum over source tokens of log(min(1, attention received from all output tokens))

How much each source token has been looked at is part of the state, so that it follows its hypothesis like the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from regard.decoding.hypothesis import Step, Tree

LEAST = 1e-3
"""A token that was never looked at counts as looked at this much: one miss must not outweigh everything else."""


class CoverageState(NamedTuple):
    """A state, and the attention that each source token has received."""

    state: Tree
    seen_BWS: Tensor


@dataclass(frozen=True)
class CoveragePenalty:
    """Makes a step keep count, and turns the count into a penalty."""

    weight: float
    looked: Callable[[], Tensor]
    """Where the last step looked: [B, W, S], a row sums to 1."""

    def start(self, state: Tree, mask_BS: Tensor) -> CoverageState:
        """Nothing seen yet; padding counts as seen."""
        return CoverageState(state, (~mask_BS).float()[:, None])

    def watched(self, step: Step) -> Step:
        """The same step over `Covered` states."""

        def count(token_BW: Tensor, state: Tree, memory: Tree) -> tuple[Tensor, Tree]:
            logits_BWV, inner = step(token_BW, state.state, memory)
            return logits_BWV, CoverageState(inner, state.seen_BWS + self.looked())

        return count

    def bonus(self, state: Tree) -> Tensor:
        """What each hypothesis gets when it ends, [B, W]: 0 when all was looked at, else less."""
        return self.weight * state.seen_BWS.clamp(LEAST, 1.0).log().sum(-1)
