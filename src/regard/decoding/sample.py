"""Sampling: the next token is drawn, from all of the distribution or from its best part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decoding.constraints import Constraint
from regard.decoding.greedy import Pick, walk
from regard.decoding.hypothesis import Form, Hypothesis, Penalty, Step, Tokens
from regard.decoding.top import top
from regard.decoding.tree import Tree


@dataclass(frozen=True)
class Sample:
    """Which part of a distribution may be drawn from. Each limit looks at what the ones before it left."""

    temperature: float = 1.0
    """Log-probabilities are divided by it: below 1 the likely become likelier; 0 is greedy."""
    top_k: int = 0
    """Only the so many likeliest; 0: all."""
    top_p: float = 1.0
    """Only the likeliest that together reach this probability (Holtzman et al. 2020)."""
    epsilon: float = 0.0
    """Only those more probable than this (Hewitt et al. 2022)."""

    def draw(self, log_probs_NWV: Tensor, chance_NW: Tensor) -> Tensor:
        """One token each, by numbers between 0 and 1. The likeliest is never left out."""
        words = log_probs_NWV.shape[-1]
        value_NWC, token_NWC = top(log_probs_NWV, 1 if self.temperature == 0 else min(self.top_k or words, words))
        share_NWC = (value_NWC / (self.temperature or 1.0)).softmax(-1)
        before_NWC = share_NWC.cumsum(-1) - share_NWC
        left_out = (before_NWC >= self.top_p) | (share_NWC <= self.epsilon)
        left_out[..., 0] = False
        reached_NWC = share_NWC.masked_fill(left_out, 0.0).cumsum(-1)
        place_NW = (reached_NWC <= (chance_NW * reached_NWC[..., -1])[..., None]).sum(-1)
        last_NW = (~left_out).sum(-1) - 1  # a number next to 1 may be rounded to the whole sum
        return token_NWC.gather(-1, torch.minimum(place_NW, last_NW)[..., None]).squeeze(-1)


@dataclass(frozen=True)
class Dice:
    """Numbers between 0 and 1 that depend on the sentence's seed, the path and the place alone, not on the batch."""

    seed_B: Tensor

    def roll(self, row_N: Tensor, paths: int, place: int) -> Tensor:
        """One number for each path of these sentences: [N, W]."""
        path_W = torch.arange(paths, device=row_N.device)
        mixed_NW = _mix(_mix(_mix(self.seed_B[row_N]) + place)[:, None] + path_W)
        return (mixed_NW >> 40 & 0xFFFFFF).to(torch.float32) / (1 << 24)


def _mix(number: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele et al. 2014): neighbouring numbers become unrelated ones."""
    number = number * -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
    number = (number ^ (number >> 30 & 0x3FFFFFFFF)) * -4658895280553007687
    number = (number ^ (number >> 27 & 0x1FFFFFFFFF)) * -7723592293110705685
    return number ^ (number >> 31 & 0x1FFFFFFFF)


def drawing(how: Sample, dice: Dice, paths: int = 1) -> Pick:
    """The choice of the next token by chance."""
    return lambda log_probs_NWV, row_N, place: how.draw(log_probs_NWV, dice.roll(row_N, paths, place))


def sample(
    step: Step,
    state: Tree,
    memory: Tree,
    longest_B: Tensor,
    tokens: Tokens,
    *,
    dice: Dice,
    how: Sample,
    paths: int = 1,
    penalty: float = 1.0,
    form: Form = "plain",
    constraints: Sequence[Constraint] = (),
) -> list[list[Hypothesis]]:
    """`paths` independent draws for each sentence, best first; the log-probabilities are the model's, untouched."""
    scoring = Penalty(penalty, form)
    pick = drawing(how, dice, paths)
    return walk(step, state, memory, longest_B, tokens, pick, paths=paths, scoring=scoring, constraints=constraints)
