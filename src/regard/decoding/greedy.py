"""Greedy search and random sampling (temperature, top-k, top-p), of whole batches or streamed token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decoding.beam import REMOVED_SHARE
from regard.decoding.constraints import Constraint, constrain
from regard.decoding.hypothesis import Hypothesis, Step, Tokens, Tree, follow_beams, keep_rows, top
from regard.decoding.penalties import MEAN, LengthPenalty

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""choose(log_probs_NWV, row_N, position) -> token_NW: selects the next token of each output.

`row_N`: index of each sentence in the batch. `position`: number of tokens before the next token.
"""


def most_likely(log_probs_NWV: Tensor, row_N: Tensor, position: int) -> Tensor:
    """Return the most likely next token [N, W] of each output: the `choose` function of greedy search."""
    return top(log_probs_NWV, 1)[1].squeeze(-1)


def extend_paths(
    step: Step,
    state: Tree,
    memory: Tree,
    longest_B: Tensor,
    tokens: Tokens,
    choose: Choose = most_likely,
    *,
    paths: int = 1,
    penalty: LengthPenalty = MEAN,
    constraints: Sequence[Constraint] = (),
) -> list[list[Hypothesis]]:
    """Greedy search or sampling: returns `paths` outputs per sentence, best first; `choose` selects each next token.

    `step`, `state`, `memory`, `longest_B` and `tokens` are the same as for `beam_search`. The returned
    log-probabilities and scores do not depend on temperature, top-k and top-p of `choose`.
    """
    found: list[list[Hypothesis]] = [[] for _ in longest_B]
    row_N = torch.arange(len(longest_B), device=longest_B.device)
    token_NW = torch.full((len(longest_B), paths), tokens.start, device=longest_B.device)
    length_NW = torch.zeros_like(token_NW)  # 0: still open
    path_NWT = token_NW.new_empty(*token_NW.shape, 0)
    log_probs_NWT = torch.empty(*token_NW.shape, 0, device=longest_B.device)
    state = follow_beams(state, torch.zeros_like(token_NW)) if paths > 1 else state
    while len(row_N):
        logits_NWV, state = step(token_NW, state, memory)
        log_probs_NWV = constrain(constraints, tokens.log_probs(logits_NWV), path_NWT, row_N, tokens.end)
        position = path_NWT.shape[-1]
        token_NW = choose(log_probs_NWV, row_N, position)
        path_NWT = torch.cat([path_NWT, token_NW[:, :, None]], dim=-1)
        log_probs_NWT = torch.cat([log_probs_NWT, log_probs_NWV.gather(-1, token_NW[:, :, None])], dim=-1)
        ends_NW = (length_NW == 0) & ((token_NW == tokens.end) | (position + 1 >= longest_B[row_N])[:, None])
        length_NW = length_NW.masked_fill(ends_NW, position + 1)
        going_N = (length_NW == 0).any(-1)
        if int(going_N.sum()) > (1 - REMOVED_SHARE) * len(row_N):
            continue
        leaving, rest = (~going_N).nonzero()[:, 0], going_N.nonzero()[:, 0]
        done = (part[leaving].tolist() for part in (row_N, path_NWT, log_probs_NWT, length_NW))
        for row, paths_WT, parts_WT, lengths_W in zip(*done, strict=True):
            made = [
                Hypothesis.of(path[:length], parts[:length], penalty.score(parts[:length]), tokens.end)
                for path, parts, length in zip(paths_WT, parts_WT, lengths_W, strict=True)
            ]
            found[row] = sorted(made, key=lambda hypothesis: -hypothesis.score)
        row_N, path_NWT, log_probs_NWT = row_N[rest], path_NWT[rest], log_probs_NWT[rest]
        length_NW, token_NW = length_NW[rest], token_NW[rest]
        state, memory = keep_rows(state, rest), keep_rows(memory, rest)
    return found


@dataclass(frozen=True)
class Sample:
    """Settings of random sampling. `top_p` and `epsilon` apply to the probabilities after `top_k` and `temperature`."""

    temperature: float = 1.0
    """Divides the log-probabilities: below 1, likely tokens become more likely; 0 is greedy search."""
    top_k: int = 0
    """Sample only from the `top_k` most likely tokens; with 0, from all tokens."""
    top_p: float = 1.0
    """Sample only from the most likely tokens that together reach this probability (Holtzman et al. 2020)."""
    epsilon: float = 0.0
    """Sample only from tokens with a higher probability than this (Hewitt et al. 2022)."""

    def draw(self, log_probs_NWV: Tensor, uniform_NW: Tensor) -> Tensor:
        """Sample the next token [N, W] of each of W outputs per sentence; the most likely token is always allowed.

        `uniform_NW` are random numbers from 0 to 1, one per output.
        """
        if self == Sample(self.temperature) and self.temperature:
            return self._draw_from_all(log_probs_NWV, uniform_NW)
        words = log_probs_NWV.shape[-1]
        value_NWC, token_NWC = top(log_probs_NWV, 1 if self.temperature == 0 else min(self.top_k or words, words))
        share_NWC = (value_NWC / (self.temperature or 1.0)).softmax(-1)
        before_NWC = share_NWC.cumsum(-1) - share_NWC
        excluded = (before_NWC >= self.top_p) | (share_NWC <= self.epsilon)
        excluded[..., 0] = False
        reached_NWC = share_NWC.masked_fill(excluded, 0.0).cumsum(-1)
        place_NW = (reached_NWC <= (uniform_NW * reached_NWC[..., -1])[..., None]).sum(-1)
        last_NW = (~excluded).sum(-1) - 1  # a number close to 1 may be rounded to the whole sum
        return token_NWC.gather(-1, torch.minimum(place_NW, last_NW)[..., None]).squeeze(-1)

    def _draw_from_all(self, log_probs_NWV: Tensor, uniform_NW: Tensor) -> Tensor:
        """Sample from all tokens. They need not be sorted, which takes most of the time with a large vocabulary."""
        reached_NWV = (log_probs_NWV / self.temperature).softmax(-1).cumsum(-1)
        place_NW = (reached_NWV <= uniform_NW[..., None] * reached_NWV[..., -1:]).sum(-1)
        is_sum_NW = place_NW == reached_NWV.shape[-1]  # a number close to 1 was rounded to the whole sum
        return torch.where(is_sum_NW, most_likely(log_probs_NWV, place_NW, 0), place_NW)


def uniform(seed_N: Tensor, paths: int, position: int) -> Tensor:
    """Pseudorandom numbers [N, W] in [0, 1), one for each of W = `paths` outputs of N sentences.

    They depend only on the seed of the sentence, the index of the output and the `position` of the next token.
    """
    path_W = torch.arange(paths, device=seed_N.device)
    mixed_NW = _mix(_mix(_mix(seed_N) + position)[:, None] + path_W)
    return (mixed_NW >> 40 & 0xFFFFFF).to(torch.float32) / (1 << 24)


def _mix(number: Tensor) -> Tensor:
    """Hash 64-bit integers with the mixing function of SplitMix64 (Steele et al. 2014)."""
    number = number * -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
    number = (number ^ (number >> 30 & 0x3FFFFFFFF)) * -4658895280553007687
    number = (number ^ (number >> 27 & 0x1FFFFFFFFF)) * -7723592293110705685
    return number ^ (number >> 31 & 0x1FFFFFFFF)


def sampling(settings: Sample, seed_B: Tensor) -> Choose:
    """Return a `choose` function for `extend_paths` that samples the next token, with one random seed per sentence."""
    return lambda log_probs_NWV, row_N, position: settings.draw(
        log_probs_NWV, uniform(seed_B[row_N], log_probs_NWV.shape[1], position)
    )


@torch.inference_mode()
def stream(
    step: Step,
    state: Tree,
    memory: Tree,
    longest_B: Tensor,
    tokens: Tokens,
    choose: Choose = most_likely,
    constraints: Sequence[Constraint] = (),
) -> Iterator[int]:
    """Decode a single sentence, and yield each token, except the end token, as soon as `choose` has selected it.

    The arguments are the same as for `extend_paths`, for a batch of one.
    """
    token_11 = torch.full((1, 1), tokens.start, device=longest_B.device)
    row_1 = torch.zeros_like(token_11[0])
    path_11T = token_11.new_empty(1, 1, 0)
    for position in range(int(longest_B)):
        logits_11V, state = step(token_11, state, memory)
        log_probs_11V = constrain(constraints, tokens.log_probs(logits_11V), path_11T, row_1, tokens.end)
        token_11 = choose(log_probs_11V, row_1, position)
        if int(token_11) == tokens.end:
            return
        yield int(token_11)
        path_11T = torch.cat([path_11T, token_11[:, :, None]], dim=-1)
