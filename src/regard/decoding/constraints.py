"""What may not be written. Constraints change log-probabilities before a search chooses; all searches share them.

A constraint is called with `log_probs_NWV`, which it writes into, the paths so far and the sentences they belong to.
Those that forbid leave the other tokens' log-probabilities as they are: a score stays the model's own opinion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Constraint(Protocol):
    """Something that changes the log-probabilities of the next token."""

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        """Write into `log_probs_NWV`, given the tokens so far and the number of each sentence in the whole batch."""


def constrain(
    constraints: Sequence[Constraint], log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor, end: int
) -> Tensor:
    """Apply one after the other. Where they leave nothing to write, the output ends."""
    if constraints:
        end_NW = log_probs_NWV[..., end].clone()
        _apply(constraints, log_probs_NWV, path_NWT, row_N)
        stuck_NW = log_probs_NWV.amax(-1) == -torch.inf
        log_probs_NWV[..., end] = torch.where(stuck_NW, end_NW, log_probs_NWV[..., end])
    return log_probs_NWV


def _apply(constraints: Sequence[Constraint], log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
    for constraint in constraints:
        constraint(log_probs_NWV, path_NWT, row_N)


@dataclass(frozen=True)
class SuppressTokens:
    """These tokens are never written."""

    tokens: tuple[int, ...]

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        log_probs_NWV[..., list(self.tokens)] = -torch.inf


@dataclass(frozen=True)
class MinLength:
    """The end may not come before so many tokens are written."""

    length: int
    end: int

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        if path_NWT.shape[-1] < self.length:
            log_probs_NWV[..., self.end] = -torch.inf


@dataclass(frozen=True)
class NoRepeatNgram:
    """No run of `size` tokens stands twice in an output."""

    size: int

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        length = path_NWT.shape[-1]
        if length < self.size:
            return
        runs_NWRn = path_NWT.unfold(-1, self.size, 1)
        just_written = path_NWT[..., length - self.size + 1 :]
        again_NWR = (runs_NWRn[..., :-1] == just_written.unsqueeze(-2)).all(-1)
        bar = torch.zeros_like(again_NWR, dtype=log_probs_NWV.dtype).masked_fill_(again_NWR, -torch.inf)
        log_probs_NWV.scatter_add_(-1, runs_NWRn[..., -1], bar)


@dataclass(frozen=True)
class RepetitionPenalty:
    """Log-probabilities of tokens written before are multiplied by `factor` (Keskar et al. 2019).

    The only constraint that changes scores rather than forbidding.
    """

    factor: float

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        log_probs_NWV.scatter_(-1, path_NWT, log_probs_NWV.gather(-1, path_NWT) * self.factor)


@dataclass(frozen=True)
class ForcedPrefix:
    """Each sentence's output begins with the tokens given for it, whatever the other constraints say."""

    token_BT: Tensor
    """Padded with -1."""
    others: tuple[Constraint, ...] = ()

    @classmethod
    def of(
        cls, prefixes: Sequence[Sequence[int]], others: Sequence[Constraint] = (), device: torch.device | None = None
    ) -> ForcedPrefix:
        """From lists of tokens, one a sentence; an empty one leaves its sentence free."""
        longest = max(map(len, prefixes))
        rows = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
        return cls(torch.tensor(rows, device=device), tuple(others))

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        place = path_NWT.shape[-1]
        if place >= self.token_BT.shape[1]:
            _apply(self.others, log_probs_NWV, path_NWT, row_N)
            return
        token_N = self.token_BT[row_N, place]
        given_G = (token_N >= 0).nonzero()[:, 0]
        wanted_GW1 = token_N[given_G, None, None].expand(-1, log_probs_NWV.shape[1], 1)
        kept_GW1 = log_probs_NWV[given_G].gather(-1, wanted_GW1)
        _apply(self.others, log_probs_NWV, path_NWT, row_N)
        log_probs_NWV[given_G] = -torch.inf
        log_probs_NWV[given_G] = log_probs_NWV[given_G].scatter_(-1, wanted_GW1, kept_GW1)
