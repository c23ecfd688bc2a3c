"""Forced decoding: what a given target costs, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decoding.hypothesis import Form, Hypothesis, Penalty, Step, Tokens
from regard.decoding.tree import Tree


def force(
    step: Step,
    state: Tree,
    memory: Tree,
    targets: Sequence[Sequence[int]],
    tokens: Tokens,
    *,
    device: torch.device | None = None,
    penalty: float = 1.0,
    form: Form = "plain",
) -> list[Hypothesis]:
    """The hypotheses that searches would have found had they chosen these targets (without the end token)."""
    paths = [[*target, tokens.end] for target in targets]
    longest = max(map(len, paths))
    path_BT = torch.tensor([path + [tokens.end] * (longest - len(path)) for path in paths], device=device)
    token_B1, parts = torch.full_like(path_BT[:, :1], tokens.start), []
    for next_B1 in path_BT.split(1, dim=1):
        logits_B1V, state = step(token_B1, state, memory)
        parts.append(_log_prob(logits_B1V[:, 0], next_B1, tokens))
        token_B1 = next_B1
    divisors = Penalty(penalty, form).divisor(torch.tensor([len(path) for path in paths])).tolist()
    return [
        Hypothesis.of(path, log_probs[: len(path)], sum(log_probs[: len(path)]) / divisor, tokens.end)
        for path, log_probs, divisor in zip(paths, torch.cat(parts, dim=1).tolist(), divisors, strict=True)
    ]


def _log_prob(logits_BV: Tensor, next_B1: Tensor, tokens: Tokens) -> Tensor:
    """Of the next token. One that no search would write, such as an unknown word, is counted in for this once."""
    if not tokens.never:
        return logits_BV.log_softmax(-1).gather(-1, next_B1)
    own_B1 = logits_BV.gather(-1, next_B1)
    never = torch.tensor(tokens.never, device=logits_BV.device)
    allowed_BV = logits_BV.index_fill(-1, never, -torch.inf).scatter_(-1, next_B1, own_B1)
    return allowed_BV.log_softmax(-1).gather(-1, next_B1)
