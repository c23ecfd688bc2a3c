"""One path at a time, never looked back on: greedy decoding, and the loop that sampling shares with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.decoding.beam import LEAVING_SHARE
from regard.decoding.constraints import Constraint, constrain
from regard.decoding.hypothesis import Form, Hypothesis, Penalty, Step, Tokens
from regard.decoding.top import top
from regard.decoding.tree import Tree, follow_beams, keep_rows

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
    scoring = Penalty(penalty, form)
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
    scoring: Penalty,
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
    paths: list[list[int]], log_probs: list[list[float]], lengths: list[int], scoring: Penalty, end: int
) -> list[Hypothesis]:
    made = []
    for path, parts, length in zip(paths, log_probs, lengths, strict=True):
        score = sum(parts[:length]) / float(scoring.divisor(length))
        made.append(Hypothesis.of(path[:length], parts[:length], score, end))
    return sorted(made, key=lambda hypothesis: -hypothesis.score)
