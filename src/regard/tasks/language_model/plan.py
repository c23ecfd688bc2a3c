"""The plan of language models: sizes from the amount of text and the time, learning rate, length of training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from regard.config import settings_of
from regard.training.device import Machine
from regard.training.plan import (
    SHARE_OF_PEAK,
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


class Size(NamedTuple):
    """The size of a network: width and number of layers."""

    width: int
    layers: int

    def parameters(self, vocabulary: int) -> int:
        """Approximate number of parameters: a block has 12 width^2, as many as one and a half layers of an LSTM."""
        return 12 * self.layers * self.width**2 + vocabulary * self.width


SIZES = (Size(128, 2), Size(192, 3), Size(256, 4), Size(512, 6))
"""The sizes among which the plan chooses. A recurrent network has the same width, but at most two layers."""


def make_plan(tokens: float, machine: Machine, given: Tables) -> list[PlannedSetting]:
    """Choose the settings that the user has not `given`. `tokens`: approximate number of tokens to train on."""
    train, model = given.get("train", {}), settings_of(given.get("model", {}).get("arch", "transformer-lm"))
    muon = model.suits_muon and train.get("optimizer") != "adam"
    muon = muon and not (train.get("fsdp") or train.get("expert_parallel"))
    batch = 1024 if tokens < 1e6 else 2048 if tokens < 5e6 else 4096
    epoch = steps_per_epoch(tokens, train.get("batch_tokens") or batch)
    every = min(max(epoch, 100), 2000)
    choices = [
        *_sizes(tokens, machine, given, recurrent=not model.attends),
        *choose_precision(machine),
        *choose_learning_rate(1e-3 if model.attends and not muon else 3e-3, 50, 0.4, muon=muon),
        PlannedSetting("train.batch_tokens", batch, "much data" if batch == 4096 else "little data: many small steps"),
        *choose_length(epoch, validate_every=every, patience=4, max_steps=max(20 * epoch, 10 * every)),
    ]
    if model.attends:
        reason = "sub-layers add nothing at first: needs fewer steps"
        choices.append(PlannedSetting("train.zero_init_residual", True, reason))
    return leave_given(choices, given)


def _sizes(tokens: float, machine: Machine, given: Tables, *, recurrent: bool) -> Iterator[PlannedSetting]:
    much = f"about {tokens / 1e6:.1f} million tokens"
    vocabulary = 2000 if tokens < 2e5 else 4000 if tokens < 1e6 else 6000 if tokens < 5e6 else 16_000
    yield PlannedSetting("tokenizer.vocab_size", vocabulary, f"{much}: few enough that each subword is seen often")
    most = 0 if tokens < 2e5 else 2 if tokens < 2e7 else 3
    chosen = most
    minutes = given.get("train", {}).get("max_minutes", 0)
    vocabulary = given.get("tokenizer", {}).get("vocab_size", vocabulary)
    while chosen and minutes and _epochs(SIZES[chosen], vocabulary, tokens, machine, minutes) < ENOUGH_EPOCHS:
        chosen -= 1
    reason = f"{much}: a larger network overfits"
    if chosen < most:
        reason = f"a larger network reads {much} fewer than {ENOUGH_EPOCHS} times in {minutes:g} minutes"
    layers = min(SIZES[chosen].layers, 2) if recurrent else SIZES[chosen].layers
    width = given.get("model", {}).get("width", 0) or SIZES[chosen].width
    yield PlannedSetting("model.layers", layers, reason)
    yield PlannedSetting("model.width", width, reason)
    yield PlannedSetting("model.ffn_width", 4 * width, "four times the width, as in the paper")
    yield PlannedSetting("model.heads", max(width // 64, 1), "heads of 64, as in the paper")
    dropout = 0.3 if tokens < 2e6 else 0.2 if tokens < 2e7 else 0.1
    shown = "the less data, the more dropout"
    if chosen < most:
        dropout, shown = min(dropout, 0.2), "the small network reads the data only a few times"
    yield PlannedSetting("model.dropout", dropout, shown)


def _epochs(size: Size, vocabulary: int, tokens: float, machine: Machine, minutes: float) -> float:
    """The number of times that a network of this size reads the texts in `minutes` of training on this machine."""
    operations = 6 * size.parameters(vocabulary)  # per token: two in the forward pass, four in the backward pass
    return 60 * minutes * SHARE_OF_PEAK * machine.peak / (operations * tokens)
