"""Each Transformer learns to copy and to reverse strings of digits, from nothing, within a CPU minute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from regard import models
from regard.models import presets
from regard.models.transformer_settings import TransformerSettings
from tests.learn.digits import END, START, VOCABULARY, exact_matches, learn
from tests.toys import Sentences, toy

LENGTH = 6

Task = Callable[[Tensor], Tensor]
TASKS: dict[str, Task] = {"copy": lambda digits: digits, "reverse": lambda digits: digits.flip(1)}
TRANSFORMERS = [
    arch
    for arch, preset in presets("seq2seq").items()
    if isinstance(preset, TransformerSettings) and not preset.experts  # test_experts.py has those with experts
]
FAST = {("transformer-tiny", "reverse"), ("transformer-small", "copy")}  # one norm before, one after
CASES = [
    pytest.param(arch, task, marks=[] if (arch, task) in FAST else pytest.mark.slow)
    for arch in TRANSFORMERS
    for task in TASKS
]


def draw(task: Task, count: int) -> tuple[Sentences, Tensor]:
    """Random strings of digits as a source, and the target that the task makes of them, with start and end."""
    digits = torch.randint(10, (count, LENGTH))
    start, end = torch.full((count, 1), START), torch.full((count, 1), END)
    source_BS = torch.cat([digits, end], dim=1)
    target_BT = torch.cat([start, task(digits), end], dim=1)
    return Sentences(source_BS, torch.ones_like(source_BS, dtype=torch.bool)), target_BT


@pytest.mark.parametrize(("arch", "task"), CASES)
def test_learns(arch: str, task: str) -> None:
    settings = toy(arch, encoder_layers=2, decoder_layers=2, width=64, ffn_width=128, dropout=0.0)
    model = models.build(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    strings = partial(draw, TASKS[task])
    learn(model, strings, steps=200 if (arch, task) in FAST else 300, peak=3e-3)
    assert exact_matches(model, strings) >= 0.99
