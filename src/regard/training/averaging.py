"""Averages of the weights, which are usually better than the weights of any single step.

Either an exponential moving average, or the mean of the weights at the last few validations (Vaswani et al. 2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.config import TrainSettings
from regard.training.device import by_sharding, scatter


class WeightAverage:
    """Base class of weight averages, used as it is when averaging is off.

    `live`: the weights of the model; `shadow`: their average, here the same tensors.
    """

    averages = False

    def __init__(self, model: nn.Module):
        self.names = [name for name, _ in model.named_parameters()]
        self.live: list[Tensor] = list(model.parameters())
        self.shadow = [parameter.detach().clone() for parameter in self.live] if self.averages else self.live
        self.kept: dict[int, list[Tensor]] = {}
        """Weights at the last validations, if the average needs them, by slot; new weights replace the oldest slot."""

    def update(self, step: int) -> None:
        """Called after each training step (`step` is its number, from 1): subclasses update the average."""

    def checkpoint(self, step: int) -> None:
        """Called before each validation (`step`: number of training steps so far): subclasses update the average."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the `with` block, the model has the averaged weights; afterwards, its own weights again."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        if self.averages:
            for parameter, other in zip(self.live, self.shadow, strict=True):
                parameter.data, other.data = other.data, parameter.data

    def named(self) -> dict[str, Tensor]:
        return {name: tensor.detach() for name, tensor in zip(self.names, self.shadow, strict=True)}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, tensor) for a checkpoint: the average, and the stored weights from which it is computed."""
        if self.averages:
            yield from ((f"average.{name}", tensor) for name, tensor in self.named().items())
            for slot, tensors in sorted(self.kept.items()):
                yield from ((f"checkpoint.{slot}.{name}", t) for name, t in zip(self.names, tensors, strict=True))

    @torch.no_grad()
    def load(self, key: str, tensor: Tensor) -> None:
        """Load a tensor of a checkpoint; `key`: the name that `tensors` gave it. Clear `kept` before the first call."""
        kind, _, name = key.partition(".")
        if not self.averages:
            return
        tensors = self.shadow
        if kind == "checkpoint":
            slot, _, name = name.partition(".")
            if int(slot) not in self.kept:
                self.kept[int(slot)] = [torch.empty_like(parameter) for parameter in self.shadow]
            tensors = self.kept[int(slot)]
        goal = tensors[self.names.index(name)]
        goal.copy_(scatter(tensor, goal))


class ExponentialMovingAverage(WeightAverage):
    """Exponential moving average of the weights, with the decay min(`decay`, (1 + step) / (10 + step)).

    The decay is low in the first steps, so that the initial weights are soon forgotten.
    """

    averages = True

    def __init__(self, model: nn.Module, decay: float):
        super().__init__(model)
        self.decay = decay

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        for shadow, live in zip(by_sharding(self.shadow), by_sharding(self.live), strict=True):
            torch._foreach_lerp_(shadow, live, 1 - decay)


class CheckpointAverage(WeightAverage):
    """Mean of the weights at the last `count` validations, one per `every` steps; before them, the current weights."""

    averages = True

    def __init__(self, model: nn.Module, count: int, every: int):
        super().__init__(model)
        self.count, self.every = count, every

    @torch.no_grad()
    def update(self, step: int) -> None:
        if not self.kept:
            for shadow, live in zip(by_sharding(self.shadow), by_sharding(self.live), strict=True):
                torch._foreach_copy_(shadow, live)

    @torch.no_grad()
    def checkpoint(self, step: int) -> None:
        """Store the current weights in place of those of the oldest validation; average all stored weights."""
        self.kept[math.ceil(step / self.every) % self.count] = [parameter.detach().clone() for parameter in self.live]
        checkpoints = [self.kept[slot] for slot in sorted(self.kept)]
        for mean, *versions in zip(self.shadow, *checkpoints, strict=True):
            mean.copy_(torch.stack(versions).mean(0) if len(versions) > 1 else versions[0])


def make_average(model: nn.Module, settings: TrainSettings) -> WeightAverage:
    """Build the average chosen by `train.average_checkpoints` or `train.ema_decay`; no average if both are 0."""
    if settings.average_checkpoints:
        return CheckpointAverage(model, settings.average_checkpoints, settings.validate_every)
    return ExponentialMovingAverage(model, settings.ema_decay) if settings.ema_decay else WeightAverage(model)
