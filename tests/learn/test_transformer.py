"""Each Transformer learns to copy and to reverse strings of digits, from nothing, within a CPU minute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from regard.config import PRESETS, Transformer
from regard.models import build_model
from regard.models.base import Seq2Seq
from tests.toys import Sentences, toy

START, END, VOCABULARY = 10, 11, 12  # after the ten digits
LENGTH = 6

Task = Callable[[Tensor], Tensor]
TASKS: dict[str, Task] = {"copy": lambda digits: digits, "reverse": lambda digits: digits.flip(1)}
TRANSFORMERS = [arch for arch, preset in PRESETS.items() if isinstance(preset, Transformer)]
FAST = {("transformer-tiny", "reverse"), ("transformer-small", "copy")}  # one norm before, one after
CASES = [
    pytest.param(arch, task, marks=[] if (arch, task) in FAST else pytest.mark.slow)
    for arch in TRANSFORMERS
    for task in TASKS
]


def pairs(count: int, task: Task) -> tuple[Sentences, Tensor]:
    """Random strings of digits as a source, and the target that the task makes of them, with start and end."""
    digits = torch.randint(10, (count, LENGTH))
    start, end = torch.full((count, 1), START), torch.full((count, 1), END)
    source_BS = torch.cat([digits, end], dim=1)
    target_BT = torch.cat([start, task(digits), end], dim=1)
    return Sentences(source_BS, torch.ones_like(source_BS, dtype=torch.bool)), target_BT


def learn(model: Seq2Seq, task: Task, steps: int, peak: float) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.0)
    # up over a tenth of the way, then down to zero: the post-norm stacks need the climb
    schedule = OneCycleLR(optimiser, peak, total_steps=steps, pct_start=0.1, cycle_momentum=False)
    model.train()
    for _ in range(steps):
        source, target = pairs(64, task)
        loss = F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()


@torch.no_grad()
def exact_matches(model: Seq2Seq, task: Task, count: int = 500) -> float:
    """Share of fresh strings that greedy decoding, one step at a time, answers without a mistake."""
    source, target = pairs(count, task)
    model.eval()
    memory = model.encode(source)
    state, token, answer = model.start(memory), target[:, :1], []
    for _ in range(LENGTH + 1):
        logits_BWV, state = model.step(token, state, memory)
        token = logits_BWV.argmax(-1)
        answer.append(token)
    return (torch.cat(answer, dim=1) == target[:, 1:]).all(1).float().mean().item()


@pytest.mark.parametrize(("arch", "task"), CASES)
def test_learns(arch: str, task: str) -> None:
    settings = toy(arch, encoder_layers=2, decoder_layers=2, width=64, inner=128, dropout=0.0)
    model = build_model(settings, VOCABULARY, VOCABULARY, joint=True)
    learn(model, TASKS[task], steps=300, peak=3e-3)
    assert exact_matches(model, TASKS[task]) >= 0.99
