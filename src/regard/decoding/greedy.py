"""Greedy decoding: at each step the likeliest token."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.decoding.beam import Hypothesis, Step, Tokens
from regard.decoding.tree import Tree, keep_rows


def greedy(
    step: Step, state: Tree, memory: Tree, longest_B: Tensor, tokens: Tokens, *, penalty: float = 1.0
) -> list[list[Hypothesis]]:
    """The likeliest next token, again and again; a list of one hypothesis for each sentence."""
    found: list[list[Hypothesis]] = [[] for _ in longest_B]
    row_N = torch.arange(len(longest_B), device=longest_B.device)
    path_NT = torch.empty(len(longest_B), 0, dtype=torch.long, device=longest_B.device)
    score_NT = torch.empty(len(longest_B), 0, device=longest_B.device)
    token_N1 = torch.full((len(longest_B), 1), tokens.start, device=longest_B.device)
    while len(row_N):
        logits_N1V, state = step(token_N1, state, memory)
        log_probs_NV = tokens.forbid(logits_N1V[:, 0]).log_softmax(-1)
        score_N1, token_N1 = log_probs_NV.max(-1, keepdim=True)
        path_NT, score_NT = torch.cat([path_NT, token_N1], 1), torch.cat([score_NT, score_N1], 1)
        ended_N = token_N1[:, 0] == tokens.end
        done_N = ended_N | (path_NT.shape[1] >= longest_B[row_N])
        if not done_N.any():
            continue
        for place in done_N.nonzero()[:, 0].tolist():
            path, log_probs = path_NT[place].tolist(), score_NT[place].tolist()
            hypothesis = Hypothesis.of(path, log_probs, sum(log_probs) / len(path) ** penalty, tokens.end)
            found[int(row_N[place])].append(hypothesis)
        rest = (~done_N).nonzero()[:, 0]
        row_N, path_NT, score_NT, token_N1 = row_N[rest], path_NT[rest], score_NT[rest], token_N1[rest]
        state, memory = keep_rows(state, rest), keep_rows(memory, rest)
    return found
