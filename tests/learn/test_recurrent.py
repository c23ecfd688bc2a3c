"""Each recurrent preset learns to copy and to reverse strings of digits, from nothing, within a CPU minute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from regard import models
from regard.models import presets
from regard.models.deep_att import DeepAttSettings
from regard.models.recurrent import RecurrentSettings
from tests.learn.digits import END, START, VOCABULARY, exact_matches, learn
from tests.toys import Sentences, toy

SHORTEST, LONGEST = 3, 8

Task = Callable[[Tensor, Tensor], Tensor]
"""From places in the answer and lengths of the strings to the places in the source that the digits come from."""

TASKS: dict[str, Task] = {"copy": lambda place, length: place, "reverse": lambda place, length: length - 1 - place}

TOYS = {
    "seq2seq-lstm": (
        toy("seq2seq-lstm", encoder_layers=1, decoder_layers=1, width=96, embedding_width=96, dropout=0.0),
        900,
    ),
    "bahdanau": (toy("bahdanau", width=64, embedding_width=64, dropout=0.0), 250),
    "luong-dot": (toy("luong-dot", encoder_layers=1, decoder_layers=1, width=64, embedding_width=64, dropout=0.0), 800),
    "luong-general": (toy("luong-general", width=64, embedding_width=64, dropout=0.0), 500),
    "luong-concat": (
        toy("luong-concat", encoder_layers=1, decoder_layers=1, width=64, embedding_width=64, dropout=0.0),
        300,
    ),
    "gnmt": (toy("gnmt", encoder_layers=8, decoder_layers=8, width=64, embedding_width=64, dropout=0.0), 450),
    "deep-att": (toy("deep-att", encoder_layers=2, decoder_layers=2, width=64, embedding_width=64, dropout=0.0), 500),
}
"""Sizes that learn quickly, and for how many steps."""

FAST = {("bahdanau", "reverse"): 180, ("luong-concat", "copy"): 220}  # one attends before the cell, one after
PEAK = {"deep-att": 5e-3}
"""The highest learning rate, if it is not 8e-3."""
CASES = [
    pytest.param(arch, task, marks=[] if (arch, task) in FAST else pytest.mark.slow) for arch in TOYS for task in TASKS
]


def draw(task: Task, count: int) -> tuple[Sentences, Tensor]:
    """Random strings of digits, padded, as a source; and as a target a start, what the task makes of them, and ends."""
    digits_BS = torch.randint(10, (count, LONGEST + 1))
    length_B1, place_S = torch.randint(SHORTEST, LONGEST + 1, (count, 1)), torch.arange(LONGEST + 1)
    beyond_BS = place_S >= length_B1
    source_BS = digits_BS.masked_fill(beyond_BS, END)
    origin_BS = task(place_S, length_B1).expand_as(digits_BS).clamp(min=0)
    answer_BS = digits_BS.gather(1, origin_BS).masked_fill(beyond_BS, END)
    start_B1 = torch.full((count, 1), START)
    return Sentences(source_BS, place_S <= length_B1), torch.cat([start_B1, answer_BS], dim=1)


def test_every_recurrent_preset_is_here() -> None:
    kinds = (RecurrentSettings, DeepAttSettings)
    assert set(TOYS) == {arch for arch, preset in presets("seq2seq").items() if isinstance(preset, kinds)}


@pytest.mark.parametrize(("arch", "task"), CASES)
def test_learns(arch: str, task: str) -> None:
    settings, steps = TOYS[arch]
    model = models.build(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    strings = partial(draw, TASKS[task])
    learn(model, strings, FAST.get((arch, task), steps), peak=PEAK.get(arch, 8e-3))
    assert exact_matches(model, strings) >= 0.99
