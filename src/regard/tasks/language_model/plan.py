"""The plan of language models: sizes from the amount of text and the time, learning rate, length of training."""

from __future__ import annotations

from regard.config import settings_of
from regard.tasks.text_training import choose_sizes
from regard.training.device import Machine
from regard.training.plan import (
    PlannedSetting,
    Tables,
    choose_learning_rate,
    choose_length,
    choose_precision,
    leave_given,
    steps_per_epoch,
)

ENOUGH_EPOCHS = 5
"""With `train.max_minutes`, the network is the largest one that reads the texts this many times in that time."""


def make_plan(tokens: float, machine: Machine, given: Tables) -> list[PlannedSetting]:
    """Choose the settings that the user has not `given`. `tokens`: approximate number of tokens to train on."""
    train, model = given.get("train", {}), settings_of(given.get("model", {}).get("arch", "transformer-lm"))
    muon = model.suits_muon and train.get("optimizer") != "adam"
    muon = muon and not (train.get("fsdp") or train.get("expert_parallel"))
    batch = 1024 if tokens < 1e6 else 2048 if tokens < 5e6 else 4096
    epoch = steps_per_epoch(tokens, train.get("batch_tokens") or batch)
    every = min(max(epoch, 100), 2000)
    choices = [
        *choose_sizes(
            tokens, machine, given, layers="model.layers", epochs=ENOUGH_EPOCHS, most_layers=0 if model.attends else 2
        ),
        *choose_precision(machine),
        *choose_learning_rate(1e-3 if model.attends and not muon else 3e-3, 50, 0.4, muon=muon),
        PlannedSetting("train.batch_tokens", batch, "much data" if batch == 4096 else "little data: many small steps"),
        *choose_length(epoch, validate_every=every, patience=4, max_steps=max(20 * epoch, 10 * every)),
    ]
    if model.attends:
        reason = "sub-layers add nothing at first: needs fewer steps"
        choices.append(PlannedSetting("train.zero_init_residual", True, reason))
    return leave_given(choices, given)
