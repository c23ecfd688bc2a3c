"""Models with experts learn to copy and to reverse strings of digits in two CPU minutes, and use all their experts."""

from __future__ import annotations

from functools import partial

import pytest

from regard import models
from regard.config import ModelSettings
from regard.layers.auxiliary import collect_auxiliary
from tests.learn import test_recurrent, test_transformer
from tests.learn.digits import VOCABULARY, Draw, exact_matches, learn
from tests.toys import toy

LEAST = 0.4
"""Of the equal share: what each expert must compute."""

SETTINGS: dict[str, ModelSettings] = {
    "transformer-moe": toy("transformer-moe", encoder_layers=2, decoder_layers=2, width=64, ffn_width=64, dropout=0.0),
    "bahdanau": toy(
        "bahdanau", encoder_layers=2, decoder_layers=2, width=64, embedding_width=64, dropout=0.0, experts=4,
        expert_width=64,
    ),
}  # fmt: skip
DRAWS: dict[tuple[str, str], Draw] = {
    ("transformer-moe", task): partial(test_transformer.draw, function)
    for task, function in test_transformer.TASKS.items()
} | {("bahdanau", task): partial(test_recurrent.draw, function) for task, function in test_recurrent.TASKS.items()}
FAST = [("transformer-moe", "reverse")]
CASES = [pytest.param(*case, marks=[] if case in FAST else pytest.mark.slow) for case in DRAWS]


@pytest.mark.parametrize(("arch", "task"), CASES)
def test_learns(arch: str, task: str) -> None:
    model = models.build(SETTINGS[arch], source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    strings = DRAWS[arch, task]
    learn(model, strings, steps=300, peak=4e-3)
    assert exact_matches(model, strings) >= 0.99
    source, target_BT = strings(200)
    with collect_auxiliary() as added:
        model.train()(source, target_BT)
    assert len(added.statistics) == 2
    for layer, found in added.statistics.items():
        shares = found["load"]
        assert isinstance(shares, list)
        assert min(shares) * len(shares) > LEAST, (layer, shares)
