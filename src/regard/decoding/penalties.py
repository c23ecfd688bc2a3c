"""Length and coverage penalties (Wu et al. 2016): what is added to or divides the log-probability of a hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.decoding.hypothesis import Step, Tree

LEAST = 1e-3
"""Coverage of a token without any attention: one such token must not outweigh everything else."""

Form = Literal["plain", "gnmt"]


@dataclass(frozen=True)
class LengthPenalty:
    """Divides the log-probability of a hypothesis, so that long outputs are not worse because they are long."""

    exponent: float = 1.0
    form: Form = "plain"
    """plain: length ** exponent, which is the mean for 1; gnmt: ((5 + length) / 6) ** exponent (Wu et al. 2016)."""

    @property
    def formula(self) -> str:
        """The divisor as text, such as "length^1.4"; empty if there is none."""
        base = "length" if self.form == "plain" else "((5 + length) / 6)"
        if not self.exponent:
            return ""
        return base if self.exponent == 1 else f"{base}^{self.exponent:g}"

    def divisor(self, length: float | Tensor) -> Tensor:
        """For outputs with this many tokens, the end token included."""
        length = torch.as_tensor(length, dtype=torch.float32)
        return (length if self.form == "plain" else (5 + length) / 6) ** self.exponent

    def score(self, log_probs: Sequence[float]) -> float:
        """The score of a hypothesis with these log-probabilities of its tokens."""
        return sum(log_probs) / float(self.divisor(len(log_probs)))

    def reachable(self, total: Tensor, length: int, longest: Tensor) -> Tensor:
        """The highest score that an open hypothesis of this length can reach: further tokens never raise its total."""
        return total / torch.maximum(self.divisor(length + 1), self.divisor(longest))


MEAN = LengthPenalty()
"""The score is the mean log-probability."""


class CoverageState(NamedTuple):
    """A decoder state, and the attention that each source token has received. It follows its hypothesis."""

    state: Tree
    seen_BWS: Tensor


@dataclass(frozen=True)
class CoveragePenalty:
    """weight * sum over source tokens of log(min(1, attention received from all output tokens)).

    Source tokens without attention make a hypothesis worse.
    """

    weight: float
    attention: Callable[[], Tensor]
    """Returns the cross-attention weights of the last step: [B, W, S], a row sums to 1."""

    def start(self, state: Tree, mask_BS: Tensor) -> CoverageState:
        """The state before the first token: only padding is covered."""
        return CoverageState(state, (~mask_BS).float()[:, None])

    def wrap(self, step: Step) -> Step:
        """The same step for `CoverageState`."""

        def step_and_count(token_BW: Tensor, state: Tree, memory: Tree) -> tuple[Tensor, Tree]:
            logits_BWV, inner = step(token_BW, state.state, memory)
            return logits_BWV, CoverageState(inner, state.seen_BWS + self.attention())

        return step_and_count

    def bonus(self, state: Tree) -> Tensor:
        """What is added to the score of each hypothesis that ends, [B, W]: 0 if all is covered, else less."""
        return self.weight * state.seen_BWS.clamp(LEAST, 1.0).log().sum(-1)
