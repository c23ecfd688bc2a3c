"""One output while it is written: each token as soon as it is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regard.decoding.constraints import Constraint, constrain
from regard.decoding.greedy import Pick, likeliest
from regard.decoding.hypothesis import Step, Tokens
from regard.decoding.tree import Tree


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
