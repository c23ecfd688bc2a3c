"""What training will take: parameters, memory, arithmetic and time, before the first update."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from regard.config import Recipe, Train
from regard.models import build_model
from regard.models.base import Seq2Seq, count_parameters
from regard.training.amounts import amount, duration
from regard.training.ending import by_patience_alone
from regard.training.flops import count_cost, pair_amounts
from regard.training.machine import Machine
from regard.training.plan import CHARACTERS_PER_TOKEN, Choice, Corpus

SHARE_OF_PEAK = 0.5  # of the matmul peak, that small models reach
SHARE_OF_SHORT_PEAK = 0.35  # of that in bfloat16: what is no product takes as long as ever
FLOAT = 4
SMALLEST_BATCH = 256
PROCESS = 400e6  # Python, torch and the data, in bytes
COPIES = 5  # of each weight: itself, its gradient, two moments, its average


@dataclass(frozen=True)
class Estimate:
    """What a run will take."""

    parameters: int
    memory: float
    """Bytes, at most."""
    epoch_flops: float
    epoch_seconds: float
    epochs: float = 0.0
    """At most, by `train.max_steps`; 0: not known."""

    def describe(self, minutes: float = 0.0) -> str:
        """In a line, for people."""
        epoch = f"an epoch is {amount(self.epoch_flops)}FLOP, about {duration(self.epoch_seconds)} on this machine"
        line = f"{self.parameters / 1e6:.1f} million parameters, {self.memory / 1e9:.1f} GB of memory; {epoch}"
        if not minutes:
            epochs = f"{self.epochs:.0f}" if self.epochs >= 10 else f"{self.epochs:.2g}"
            most = f"; all {epochs} epochs about {duration(self.epochs * self.epoch_seconds)}"
            return line + most if self.epochs else line
        return f"{line}; {minutes:g} minutes are about {60 * minutes / self.epoch_seconds:.1f} epochs"


def estimate(recipe: Recipe, corpus: Corpus, machine: Machine) -> Estimate:
    """Of a recipe whose settings are all decided."""
    model = _build(recipe)
    length = _length(corpus)
    train, passes = recipe.train, 2 if recipe.train.r_drop else 1
    flops = passes * corpus.pairs * count_cost(model).training(**pair_amounts(1, round(length), round(length)))
    parameters = count_parameters(model)
    short = train.precision == "bfloat16"
    speed = machine.peak * (machine.short_gain * SHARE_OF_SHORT_PEAK if short else SHARE_OF_PEAK)
    most = train.max_steps * train.accumulate / corpus.updates(train.batch_tokens)
    epochs = 0.0 if by_patience_alone(train) else most
    return Estimate(parameters, _memory(recipe, parameters, length), flops, flops / speed, epochs)


def _build(recipe: Recipe) -> Seq2Seq:
    """The model, without memory for its weights."""
    size = recipe.tokenizer.size
    with torch.device("meta"):
        return build_model(recipe.model, size, size, joint=recipe.tokenizer.joint)


def _length(corpus: Corpus) -> float:
    return corpus.characters / CHARACTERS_PER_TOKEN + 1


def _memory(recipe: Recipe, parameters: int, length: float) -> float:
    """Bytes for the process, the weights with what the optimizer keeps of them, and the largest batch."""
    tokens = recipe.train.batch_tokens * (2 if recipe.train.r_drop else 1)
    return PROCESS + COPIES * FLOAT * parameters + tokens * FLOAT * recipe.model.kept_per_token(length)


def fit_memory(plan: list[Choice], recipe: Recipe, corpus: Corpus, machine: Machine) -> list[Choice]:
    """The plan with smaller batches, more of them an update, where the free memory would not do for what it chose."""
    planned = {choice.name for choice in plan}
    train = wanted = recipe.train
    accumulate_said = wanted.accumulate != Train.accumulate
    parameters, length = count_parameters(_build(recipe)), _length(corpus)
    while (
        _memory(recipe, parameters, length) > machine.memory
        and "train.batch_tokens" in planned
        and train.batch_tokens > SMALLEST_BATCH
    ):
        train = replace(train, batch_tokens=train.batch_tokens // 2, accumulate=2 * train.accumulate)
        recipe = replace(recipe, train=train)
    if train == wanted:
        return plan
    reason = f"{machine.memory / 1e9:.1f} GB of memory are free"
    fitted = [Choice("train.batch_tokens", train.batch_tokens, reason)]
    if not accumulate_said:
        fitted.append(Choice("train.accumulate", train.accumulate, "so that an update sees as much as it should"))
    return [choice for choice in plan if choice.name != "train.batch_tokens"] + fitted
