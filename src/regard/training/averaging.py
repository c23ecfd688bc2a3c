"""Averages of the weights, which are validated and kept: better than the weights of any single step.

Either an exponential moving average, or the mean of the weights at the last few validations (Vaswani et al. 2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from regard.config import TrainSettings

Shard = Callable[[Tensor, Tensor], Tensor]
"""Shards a whole tensor like another one."""


class AveragingRule(Protocol):
    """How the average is computed."""

    kept: dict[int, list[Tensor]]
    """Earlier weights that are still needed, by slot."""

    def update(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """Update the average (`shadow`) with the weights (`live`) after this step; the first is step 1."""

    def checkpoint(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """Prepare for a validation."""


class ExponentialMovingAverage:
    """Exponential moving average. The decay is lower in the first steps, so that the initial weights count little."""

    def __init__(self, decay: float):
        self.decay = decay
        self.kept: dict[int, list[Tensor]] = {}

    def update(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """Move the average towards the weights."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(shadow), list(live), 1 - decay)

    def checkpoint(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """Nothing to do."""


class CheckpointAverage:
    """Mean of the weights at the last few validations."""

    def __init__(self, count: int, every: int):
        self.count, self.every = count, every
        self.kept: dict[int, list[Tensor]] = {}

    def update(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """Before the first validation the average equals the weights."""
        if not self.kept:
            torch._foreach_copy_(list(shadow), list(live))

    def checkpoint(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """Replace the oldest weights by the newest."""
        self.kept[math.ceil(step / self.every) % self.count] = [parameter.detach().clone() for parameter in live]
        checkpoints = [self.kept[slot] for slot in sorted(self.kept)]
        for mean, *versions in zip(shadow, *checkpoints, strict=True):
            mean.copy_(torch.stack(versions).mean(0) if len(versions) > 1 else versions[0])


class WeightAverage:
    """The averaged weights; without a rule, the weights themselves."""

    def __init__(self, model: nn.Module, rule: AveragingRule | None):
        self.rule = rule
        self.names = [name for name, _ in model.named_parameters()]
        self.live: list[Tensor] = list(model.parameters())
        self.shadow: list[Tensor] = [parameter.detach().clone() for parameter in self.live] if rule else self.live

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average after this step; the first is step 1."""
        if self.rule:
            self.rule.update(step, self.shadow, self.live)

    @torch.no_grad()
    def checkpoint(self, step: int) -> None:
        """Prepare for a validation after this step."""
        if self.rule:
            self.rule.checkpoint(step, self.shadow, self.live)

    def reset(self) -> None:
        """Prepare for `load`."""
        if self.rule:
            self.rule.kept.clear()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the block the model has the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def named(self) -> dict[str, Tensor]:
        """The averaged weights by name."""
        return {name: tensor.detach() for name, tensor in zip(self.names, self.shadow, strict=True)}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """What a checkpoint must contain: the average, and earlier weights that are still needed."""
        if self.rule:
            yield from ((f"average.{name}", tensor) for name, tensor in self.named().items())
            for slot, tensors in sorted(self.rule.kept.items()):
                yield from ((f"checkpoint.{slot}.{name}", t) for name, t in zip(self.names, tensors, strict=True))

    @torch.no_grad()
    def load(self, place: str, tensor: Tensor, shard: Shard) -> None:
        """Load one tensor that `tensors` gave under this name."""
        kind, _, name = place.partition(".")
        if not self.rule:
            return
        tensors = self.shadow
        if kind == "checkpoint":
            slot, _, name = name.partition(".")
            if int(slot) not in self.rule.kept:
                self.rule.kept[int(slot)] = [torch.empty_like(parameter) for parameter in self.shadow]
            tensors = self.rule.kept[int(slot)]
        goal = tensors[self.names.index(name)]
        goal.copy_(shard(tensor, goal))

    def _swap(self) -> None:
        if self.rule:
            for parameter, other in zip(self.live, self.shadow, strict=True):
                parameter.data, other.data = other.data, parameter.data


def make_average(model: nn.Module, settings: TrainSettings) -> WeightAverage:
    """The average that the settings name: of the last validations, exponential, or none."""
    if settings.average_checkpoints:
        return WeightAverage(model, CheckpointAverage(settings.average_checkpoints, settings.validate_every))
    return WeightAverage(model, ExponentialMovingAverage(settings.ema_decay) if settings.ema_decay else None)
