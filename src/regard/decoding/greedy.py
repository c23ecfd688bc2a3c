"""One path at a time, never looked back on: greedy decoding, and the loop that sampling shares with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decoding.beam import LEAVING_SHARE
from regard.decoding.constraints import Constraint, constrain
from regard.decoding.hypothesis import Form, Hypothesis, LengthPenalty, Step, Tokens, Tree, follow_beams, keep_rows, top

Pick = Callable[[Tensor, Tensor, int], Tensor]
"""pick(log_probs_NWV, row_N, place) -> token_NW: how the next token is chosen, place by place."""


def greedy(
    step: Step,
    state: Tree,
    memory: Tree,
    longest_B: Tensor,
    tokens: Tokens,
    *,
    penalty: float = 1.0,
    form: Form = "plain",
    constraints: Sequence[Constraint] = (),
) -> list[list[Hypothesis]]:
    """The likeliest next token, again and again; a list of one hypothesis for each sentence."""
    scoring = LengthPenalty(penalty, form)
    return walk(step, state, memory, longest_B, tokens, likeliest, paths=1, scoring=scoring, constraints=constraints)


def likeliest(log_probs_NWV: Tensor, row_N: Tensor, place: int) -> Tensor:
    """The token with the highest probability."""
    return top(log_probs_NWV, 1)[1].squeeze(-1)


def walk(
    step: Step,
    state: Tree,
    memory: Tree,
    longest_B: Tensor,
    tokens: Tokens,
    pick: Pick,
    *,
    paths: int,
    scoring: LengthPenalty,
    constraints: Sequence[Constraint] = (),
) -> list[list[Hypothesis]]:
    """`paths` paths for each sentence, each extended by what `pick` chooses until it ends; best first."""
    found: list[list[Hypothesis]] = [[] for _ in longest_B]
    row_N = torch.arange(len(longest_B), device=longest_B.device)
    path_NWT = torch.empty(len(longest_B), paths, 0, dtype=torch.long, device=longest_B.device)
    log_probs_NWT = torch.empty(len(longest_B), paths, 0, device=longest_B.device)
    length_NW = torch.zeros(len(longest_B), paths, dtype=torch.long, device=longest_B.device)  # 0: still open
    token_NW = torch.full((len(longest_B), paths), tokens.start, device=longest_B.device)
    state = follow_beams(state, torch.zeros_like(token_NW)) if paths > 1 else state
    while len(row_N):
        logits_NWV, state = step(token_NW, state, memory)
        log_probs_NWV = constrain(constraints, tokens.log_probs(logits_NWV), path_NWT, row_N, tokens.end)
        place = path_NWT.shape[-1]
        token_NW = pick(log_probs_NWV, row_N, place)
        path_NWT = torch.cat([path_NWT, token_NW[:, :, None]], dim=-1)
        log_probs_NWT = torch.cat([log_probs_NWT, log_probs_NWV.gather(-1, token_NW[:, :, None])], dim=-1)
        ends_NW = (length_NW == 0) & ((token_NW == tokens.end) | (place + 1 >= longest_B[row_N])[:, None])
        length_NW = length_NW.masked_fill(ends_NW, place + 1)
        going_N = (length_NW == 0).any(-1)
        if int(going_N.sum()) > (1 - LEAVING_SHARE) * len(row_N):
            continue
        leaving, rest = (~going_N).nonzero()[:, 0], going_N.nonzero()[:, 0]
        done = (part[leaving].tolist() for part in (row_N, path_NWT, log_probs_NWT, length_NW))
        for row, paths_WT, parts_WT, lengths_W in zip(*done, strict=True):
            found[row] = _best_first(paths_WT, parts_WT, lengths_W, scoring, tokens.end)
        row_N, path_NWT, log_probs_NWT = row_N[rest], path_NWT[rest], log_probs_NWT[rest]
        length_NW, token_NW = length_NW[rest], token_NW[rest]
        state, memory = keep_rows(state, rest), keep_rows(memory, rest)
    return found


def _best_first(
    paths: list[list[int]], log_probs: list[list[float]], lengths: list[int], scoring: LengthPenalty, end: int
) -> list[Hypothesis]:
    made = []
    for path, parts, length in zip(paths, log_probs, lengths, strict=True):
        score = sum(parts[:length]) / float(scoring.divisor(length))
        made.append(Hypothesis.of(path[:length], parts[:length], score, end))
    return sorted(made, key=lambda hypothesis: -hypothesis.score)


# Sampling: the next token is drawn, from all of the distribution or from its best part.


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
class SeededSampler:
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


def drawing(how: Sample, dice: SeededSampler, paths: int = 1) -> Pick:
    """The choice of the next token by chance."""
    return lambda log_probs_NWV, row_N, place: how.draw(log_probs_NWV, dice.roll(row_N, paths, place))


def sample(
    step: Step,
    state: Tree,
    memory: Tree,
    longest_B: Tensor,
    tokens: Tokens,
    *,
    dice: SeededSampler,
    how: Sample,
    paths: int = 1,
    penalty: float = 1.0,
    form: Form = "plain",
    constraints: Sequence[Constraint] = (),
) -> list[list[Hypothesis]]:
    """`paths` independent draws for each sentence, best first; the log-probabilities are the model's, untouched."""
    scoring = LengthPenalty(penalty, form)
    pick = drawing(how, dice, paths)
    return walk(step, state, memory, longest_B, tokens, pick, paths=paths, scoring=scoring, constraints=constraints)


# One output while it is written: each token as soon as it is chosen.


@torch.inference_mode()
def stream(
    step: Step,
    state: Tree,
    memory: Tree,
    longest_B: Tensor,
    tokens: Tokens,
    pick: Pick = likeliest,
    constraints: Sequence[Constraint] = (),
) -> Iterator[int]:
    """The tokens of a single sentence, as a greedy search or a draw (`pick`) finds them, without the end token."""
    token_11 = torch.full((1, 1), tokens.start, device=longest_B.device)
    row_1 = torch.zeros_like(token_11[0])
    path_11T = token_11.new_empty(1, 1, 0)
    for place in range(int(longest_B)):
        logits_11V, state = step(token_11, state, memory)
        log_probs_11V = constrain(constraints, tokens.log_probs(logits_11V), path_11T, row_1, tokens.end)
        token_11 = pick(log_probs_11V, row_1, place)
        if int(token_11) == tokens.end:
            return
        yield int(token_11)
        path_11T = torch.cat([path_11T, token_11[:, :, None]], dim=-1)
