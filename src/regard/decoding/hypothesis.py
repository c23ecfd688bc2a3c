"""What every search takes and gives: a step, the special tokens, finished hypotheses and their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.decoding.tree import Tree

Step = Callable[[Tensor, Tree, Tree], tuple[Tensor, Tree]]
"""step(token_BW, state, memory) -> (logits_BWV, state). The logits are the search's own, to write into."""

Form = Literal["plain", "gnmt"]


@dataclass(frozen=True)
class Tokens:
    """The special tokens that search must know."""

    start: int
    end: int
    never: tuple[int, ...] = ()
    """Tokens that no translation may hold: padding, the start and the unknown token. They have no probability."""

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities of the tokens that may be written; minus infinity for the others.

        PyTorch's fused log-softmax takes less time than a log-sum-exp alone, so all of them are normalised.
        """
        if self.never:
            logits = logits.contiguous()  # an expanded view cannot be written into
            logits[..., list(self.never)] = -torch.inf
        return logits.log_softmax(-1)


@dataclass(frozen=True)
class Penalty:
    """What the log-probability of a hypothesis is divided by, so that long ones are not worse for being long."""

    exponent: float = 1.0
    form: Form = "plain"
    """plain: length ** exponent, an average at 1; gnmt: ((5 + length) / 6) ** exponent (Wu et al. 2016)."""

    @property
    def formula(self) -> str:
        """The divisor as text, such as "length^1.4"; empty where there is none."""
        base = "length" if self.form == "plain" else "((5 + length) / 6)"
        if not self.exponent:
            return ""
        return base if self.exponent == 1 else f"{base}^{self.exponent:g}"

    def divisor(self, length: float | Tensor) -> Tensor:
        """For outputs of this many tokens, the end token included."""
        length = torch.as_tensor(length, dtype=torch.float32)
        return (length if self.form == "plain" else (5 + length) / 6) ** self.exponent

    def reachable(self, total: Tensor, length: int, longest: Tensor) -> Tensor:
        """The most that an open hypothesis of this length can score in the end: what follows cannot raise its total."""
        return total / torch.maximum(self.divisor(length + 1), self.divisor(longest))


@dataclass(frozen=True)
class Hypothesis:
    """One finished output: its tokens without the end token, their log-probabilities with it, and the score."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    score: float
    ended: bool
    """False when the length limit cut it off."""

    @classmethod
    def of(cls, path: list[int], log_probs: list[float], score: float, end: int) -> Hypothesis:
        """From a path that may end in the end token."""
        ended = path[-1] == end
        return cls(tuple(path[:-1] if ended else path), tuple(log_probs), score, ended)
