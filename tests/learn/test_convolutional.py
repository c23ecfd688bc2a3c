"""ConvS2S and ByteNet learn to copy and to reverse strings of digits, from nothing, within two CPU minutes."""

from __future__ import annotations

from functools import partial

import pytest

from regard import models
from tests.learn.digits import VOCABULARY, exact_matches, learn
from tests.learn.test_recurrent import TASKS, draw
from tests.toys import toy

TOYS = {
    "convs2s": (
        toy("convs2s", encoder_layers=3, decoder_layers=2, width=64, embedding_width=64, max_positions=16, dropout=0.0),
        400,
    ),
    "bytenet": (toy("bytenet", encoder_layers=6, decoder_layers=2, width=128, kernel=5, dropout=0.0), 1200),
}
"""Sizes that learn quickly, and for how many steps. Without attention, reversing takes longest."""

FAST = {("convs2s", "reverse"): 250}
CASES = [
    pytest.param(arch, task, marks=[] if (arch, task) in FAST else pytest.mark.slow) for arch in TOYS for task in TASKS
]


@pytest.mark.parametrize(("arch", "task"), CASES)
def test_learns(arch: str, task: str) -> None:
    settings, steps = TOYS[arch]
    model = models.build(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    strings = partial(draw, TASKS[task])
    learn(model, strings, FAST.get((arch, task), steps), peak=5e-3)
    assert exact_matches(model, strings) >= 0.99
