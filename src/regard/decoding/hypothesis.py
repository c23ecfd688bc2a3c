"""What every search takes and gives: a step, the special tokens, finished hypotheses and their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

# Selecting rows of a memory and beams of a state, whatever tree of tensors they are.
#
# A branch may bring its own `keep(rows_N)` and `follow(beams_BW)`, which then stand for doing it tensor by tensor.


Tree = Any


def keep_rows(tree: Tree, rows_N: Tensor) -> Tree:
    """Only these sentences of a batch."""
    return _map(
        lambda leaf: leaf.index_select(0, rows_N),
        tree,
        lambda branch: branch.keep(rows_N) if hasattr(branch, "keep") else None,
    )


def follow_beams(tree: Tree, beams_BW: Tensor) -> Tree:
    """Each new hypothesis continues the state of the old one it came from. Old and new may differ in number."""
    rows, width = beams_BW.shape

    def follow(leaf: Tensor) -> Tensor:
        first = torch.arange(rows, device=leaf.device)[:, None] * leaf.shape[1]
        chosen = leaf.flatten(0, 1).index_select(0, (first + beams_BW).flatten())
        return chosen.view(rows, width, *leaf.shape[2:])

    return _map(follow, tree, lambda branch: branch.follow(beams_BW) if hasattr(branch, "follow") else None)


def _map(change: Callable[[Tensor], Tensor], tree: Tree, own_way: Callable[[Tree], Tree | None]) -> Tree:
    if isinstance(tree, Tensor):
        return change(tree)
    if (done := own_way(tree)) is not None:
        return done
    if isinstance(tree, dict):
        return {key: _map(change, branch, own_way) for key, branch in tree.items()}
    if isinstance(tree, tuple):
        branches = [_map(change, branch, own_way) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return tree


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
class LengthPenalty:
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


# The best few of many scores.


GROUP = 10
"""Scores in a group; measured on vocabularies of 6,000 to 32,000: flat between 8 and 16."""


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best of the last axis and their places, best first, like `topk`."""
    rows_NV = scores.reshape(-1, 1, scores.shape[-1])
    best_NC, place_NC = top_sums(rows_NV.new_zeros(rows_NV.shape[:2]), rows_NV, count)
    return best_NC.view(*scores.shape[:-1], -1), place_NC.view(*scores.shape[:-1], -1)


def top_sums(total_NW: Tensor, scores_NWV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best of `total + score` over all W and V of a row, best first, and their places in W V.

    The best few lie in the groups with the best maxima, and maxima of groups are cheap: only those few groups are
    searched, and no sum is made that is not looked at. A row is looked at alone, so that what is in the batch beside it
    cannot decide between equal scores.
    """
    width, length = scores_NWV.shape[1:]
    groups = length // GROUP
    if width * groups < 4 * count:
        return (total_NW[:, :, None] + scores_NWV).flatten(1).topk(count, dim=-1)
    grouped = groups * GROUP
    maxima_NWG = scores_NWV[:, :, :grouped].unflatten(-1, (GROUP, groups)).amax(-2)  # a group is a column
    _, best_NC = top((total_NW[:, :, None] + maxima_NWG).flatten(1), count)
    first_NC = best_NC // groups * length + best_NC % groups
    device = scores_NWV.device
    place_NP = (first_NC[:, :, None] + torch.arange(0, grouped, groups, device=device)).flatten(1)
    if grouped < length:  # what is left over belongs to no group
        first_W1 = torch.arange(0, width * length, length, device=device)[:, None]
        rest = (first_W1 + torch.arange(grouped, length, device=device)).flatten()
        place_NP = torch.cat([place_NP, rest.expand(len(place_NP), -1)], dim=-1)
    sum_NP = total_NW.gather(1, place_NP // length) + scores_NWV.flatten(1).gather(1, place_NP)
    best_sum_NC, among_NC = sum_NP.topk(count, dim=-1)
    return best_sum_NC, place_NP.gather(1, among_NC)
