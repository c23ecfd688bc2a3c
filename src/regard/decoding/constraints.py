"""Constraints on the next token: forced prefix, minimum length, repeated n-grams, repetition, suppressed tokens.

If a constraint forbids tokens, the probabilities of the other tokens are not renormalized, so that scores are
log-probabilities of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Constraint(Protocol):
    """A function that changes in place the log-probabilities of the next token: N sentences, W hypotheses each.

    `path_NWT`: the tokens of each hypothesis so far. `row_N`: index of each sentence in the batch.
    """

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None: ...


def constrain(
    constraints: Sequence[Constraint], log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor, end: int
) -> Tensor:
    """Apply the constraints in order to `log_probs_NWV`, in place, and return it.

    If they forbid every token of a hypothesis, the end token `end` is allowed again. `path_NWT` are the tokens so far,
    `row_N` the index of each sentence in the batch.
    """
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
    """A constraint that forbids the token ids `tokens` in the output."""

    tokens: tuple[int, ...]

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        log_probs_NWV[..., list(self.tokens)] = -torch.inf


@dataclass(frozen=True)
class MinLength:
    """A constraint that forbids the end token `end` until the output has `length` tokens."""

    length: int
    end: int

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        if path_NWT.shape[-1] < self.length:
            log_probs_NWV[..., self.end] = -torch.inf


@dataclass(frozen=True)
class NoRepeatNgram:
    """A constraint that forbids tokens that would repeat an n-gram of `size` tokens in the output."""

    size: int

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        length = path_NWT.shape[-1]
        if length < self.size:
            return
        runs_NWRn = path_NWT.unfold(-1, self.size, 1)
        last = path_NWT[..., length - self.size + 1 :]
        again_NWR = (runs_NWRn[..., :-1] == last.unsqueeze(-2)).all(-1)
        bar = torch.zeros_like(again_NWR, dtype=log_probs_NWV.dtype).masked_fill_(again_NWR, -torch.inf)
        log_probs_NWV.scatter_add_(-1, runs_NWRn[..., -1], bar)


@dataclass(frozen=True)
class RepetitionPenalty:
    """A constraint that multiplies the log-probabilities of tokens that the output already has by `factor`.

    A factor above 1 makes repetition less likely (Keskar et al. 2019).
    """

    factor: float

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        log_probs_NWV.scatter_(-1, path_NWT, log_probs_NWV.gather(-1, path_NWT) * self.factor)


@dataclass(frozen=True)
class ForcedPrefix:
    """A constraint: the output of each sentence starts with given tokens, even if other constraints forbid them."""

    token_BT: Tensor
    """The given tokens of each sentence, padded with -1."""
    others: tuple[Constraint, ...] = ()
    """Constraints on the tokens after the given tokens."""

    @classmethod
    def of(
        cls, prefixes: Sequence[Sequence[int]], others: Sequence[Constraint] = (), device: torch.device | None = None
    ) -> ForcedPrefix:
        """Build the constraint from `prefixes`, the first token ids of the output of each sentence (may be empty).

        `others` are constraints on the tokens after the prefix.
        """
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
