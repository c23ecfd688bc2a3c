"""Forced decoding: the log-probabilities and the score of a given target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.decoding.constraints import Constraint, constrain
from regard.decoding.hypothesis import Hypothesis, Step, Tokens, Tree
from regard.decoding.penalties import MEAN, LengthPenalty


def force(
    step: Step,
    state: Tree,
    memory: Tree,
    targets: Sequence[Sequence[int]],
    tokens: Tokens,
    *,
    device: torch.device | None = None,
    penalty: LengthPenalty = MEAN,
    constraints: Sequence[Constraint] = (),
    state_penalty: Callable[[Tree], Tensor] | None = None,
) -> list[Hypothesis]:
    """Score given targets: returns one hypothesis per target, with the score that a search would give it.

    `targets` are token ids without the end token. The caller must pass only constraints that forbid no token, such as
    `RepetitionPenalty`. `state_penalty(state)` is added to the score, as in `beam_search`.
    """
    paths = [[*target, tokens.end] for target in targets]
    longest = max(map(len, paths))
    path_BT = torch.tensor([path + [tokens.end] * (longest - len(path)) for path in paths], device=device)
    row_B = torch.arange(len(paths), device=path_BT.device)
    token_B1, parts, extras = torch.full_like(path_BT[:, :1], tokens.start), [], []
    for place, next_B1 in enumerate(path_BT.split(1, dim=1)):
        logits_B1V, state = step(token_B1, state, memory)
        log_probs_B1V = _log_probs(logits_B1V[:, 0], next_B1, tokens)[:, None]
        log_probs_B1V = constrain(constraints, log_probs_B1V, path_BT[:, None, :place], row_B, tokens.end)
        parts.append(log_probs_B1V[:, 0].gather(-1, next_B1))
        extras.append(state_penalty(state) if state_penalty else torch.zeros_like(parts[-1]))
        token_B1 = next_B1
    made = []
    for path, log_probs, extra in zip(paths, torch.cat(parts, 1).tolist(), torch.cat(extras, 1).tolist(), strict=True):
        own = log_probs[: len(path)]
        made.append(Hypothesis.of(path, own, penalty.score(own) + extra[len(path) - 1], tokens.end))
    return made


def _log_probs(logits_BV: Tensor, next_B1: Tensor, tokens: Tokens) -> Tensor:
    """Log-probabilities [B, V] of the next token from its logits.

    The tokens `tokens.never` get minus infinity, except the given next token `next_B1` of a row.
    """
    if not tokens.never:
        return logits_BV.log_softmax(-1)
    own_B1 = logits_BV.gather(-1, next_B1)
    never = torch.tensor(tokens.never, device=logits_BV.device)
    return logits_BV.index_fill(-1, never, -torch.inf).scatter_(-1, next_B1, own_B1).log_softmax(-1)
