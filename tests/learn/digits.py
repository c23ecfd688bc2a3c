"""Learning toy tasks on strings of digits: a plain little loop, and how many fresh strings come out right."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from regard.layers.auxiliary import collect_auxiliary
from regard.models.base import Seq2Seq
from tests.toys import Sentences

START, END, VOCABULARY = 10, 11, 12  # after the ten digits

Draw = Callable[[int], tuple[Sentences, Tensor]]
"""So many random strings as a source, and as a target a start, what the task makes of them, and the end."""


def learn(model: Seq2Seq, draw: Draw, steps: int, peak: float) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=peak, betas=(0.9, 0.98), fused=True)
    # up over a tenth of the way, then down to zero: the post-norm stacks need the climb
    schedule = OneCycleLR(optimiser, peak, total_steps=steps, pct_start=0.1, cycle_momentum=False)
    model.train()
    for _ in range(steps):
        source, target = draw(64)
        with collect_auxiliary() as added:
            loss = F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
        loss = loss + sum(added.losses)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()


@torch.no_grad()
def exact_matches(model: Seq2Seq, draw: Draw, count: int = 500) -> float:
    """Share of fresh strings that greedy decoding, one step at a time, answers without a mistake."""
    source, target = draw(count)
    model.eval()
    memory = model.encode(source)
    state, token, answer = model.start(memory), target[:, :1], []
    for _ in range(target.shape[1] - 1):
        logits_BWV, state = model.step(token, state, memory)
        token = logits_BWV.argmax(-1)
        answer.append(token)
    return (torch.cat(answer, dim=1) == target[:, 1:]).all(1).float().mean().item()
