"""Length penalty and coverage penalty (Wu et al. 2016): how a score is computed from a log-probability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.decoding.hypothesis import Step, Tree


@dataclass(frozen=True)
class LengthPenalty:
    """Divides the log-probability of a hypothesis by a function of its length, so that long outputs can win."""

    exponent: float = 1.0
    form: Literal["plain", "gnmt"] = "plain"
    """The divisor. plain: length ** exponent; gnmt: ((5 + length) / 6) ** exponent (Wu et al. 2016)."""

    @property
    def formula(self) -> str:
        """The divisor of log-probabilities as text, e.g. "length^1.4"; empty if it is always 1."""
        base = "length" if self.form == "plain" else "((5 + length) / 6)"
        if not self.exponent:
            return ""
        return base if self.exponent == 1 else f"{base}^{self.exponent:g}"

    def divisor(self, length: float | Tensor) -> Tensor:
        """The number that divides the log-probability of an output of `length` tokens, including the end token."""
        length = torch.as_tensor(length, dtype=torch.float32)
        return (length if self.form == "plain" else (5 + length) / 6) ** self.exponent

    def score(self, log_probs: Sequence[float]) -> float:
        """The score of a hypothesis: the sum of the log-probabilities of its tokens, divided by the length penalty."""
        return sum(log_probs) / float(self.divisor(len(log_probs)))

    def reachable(self, total: Tensor, length: int, longest: Tensor) -> Tensor:
        """Upper bound of the score of an open hypothesis: as if each further token had probability 1.

        `total`: sum of its log-probabilities so far. `length`: its number of tokens so far. `longest`: the length
        limit.
        """
        return total / torch.maximum(self.divisor(length + 1), self.divisor(longest))


MEAN = LengthPenalty()
"""The score is the mean of the log-probabilities of the tokens."""


class CoverageState(NamedTuple):
    """A decoder state, and the sum of the attention weights that each source token has received so far."""

    state: Tree
    seen_BWS: Tensor


@dataclass(frozen=True)
class CoveragePenalty:
    """Lowers the score of hypotheses that leave source tokens without attention.

    The penalty is weight * sum over source tokens of log(min(1, a)), where a is the attention that the source token
    received from all output tokens, at least 0.001.
    """

    weight: float
    attention: Callable[[], Tensor]
    """Returns the cross-attention weights [B, W, S] of the last step; they sum to 1 over S."""

    def start(self, state: Tree, mask_BS: Tensor) -> CoverageState:
        """Wrap the initial decoder state `state`: no source token is covered yet; padding counts as covered."""
        return CoverageState(state, (~mask_BS).float()[:, None])

    def wrap(self, step: Step) -> Step:
        """Return a step function for `CoverageState`: it calls `step` and adds the attention weights to `seen_BWS`."""

        def step_and_count(token_BW: Tensor, state: Tree, memory: Tree) -> tuple[Tensor, Tree]:
            logits_BWV, inner = step(token_BW, state.state, memory)
            return logits_BWV, CoverageState(inner, state.seen_BWS + self.attention())

        return step_and_count

    def penalty(self, state: Tree) -> Tensor:
        """The penalty [B, W] that `beam_search` adds to scores: 0 if all source tokens are covered, else negative."""
        seen_BWS = state.seen_BWS.clamp(1e-3, 1.0)  # a single token without attention must not outweigh all others
        return self.weight * seen_BWS.log().sum(-1)
