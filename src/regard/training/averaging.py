"""An average of the weights along the way: what is validated and kept. It is better than any single point of the path.

Either a moving average over all updates, or the mean of the last few checkpoints, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from regard.config import TrainSettings

LayOut = Callable[[Tensor, Tensor], Tensor]
"""A whole tensor, laid out like another one."""


class AveragingRule(Protocol):
    """How the average follows the weights."""

    kept: dict[int, list[Tensor]]
    """Earlier weights that it still needs, by slot."""

    def follow(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """Bring the average (`shadow`) up to date with the weights after update `step`, counted from 1."""

    def checkpoint(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """A validation comes."""


class ExponentialMovingAverage:
    """Exponential moving average. Early on its memory is short, so that the random start is soon forgotten."""

    def __init__(self, decay: float):
        self.decay = decay
        self.kept: dict[int, list[Tensor]] = {}

    def follow(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """A step towards the weights."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(shadow), list(live), 1 - decay)

    def checkpoint(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """It is up to date."""


class CheckpointAverage:
    """Mean of the weights at the last few validations; the newest takes the place of the oldest."""

    def __init__(self, count: int, every: int):
        self.count, self.every = count, every
        self.kept: dict[int, list[Tensor]] = {}

    def follow(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """Before the first checkpoint, the average is the weights themselves."""
        if not self.kept:
            torch._foreach_copy_(list(shadow), list(live))

    def checkpoint(self, step: int, shadow: Sequence[Tensor], live: Sequence[Tensor]) -> None:
        """Take one."""
        self.kept[math.ceil(step / self.every) % self.count] = [parameter.detach().clone() for parameter in live]
        checkpoints = [self.kept[slot] for slot in sorted(self.kept)]
        for mean, *versions in zip(shadow, *checkpoints, strict=True):
            mean.copy_(torch.stack(versions).mean(0) if len(versions) > 1 else versions[0])


class WeightAverage:
    """The averaged weights beside the live ones; where no average is wanted, the live ones themselves."""

    def __init__(self, model: nn.Module, rule: AveragingRule | None):
        self.rule = rule
        self.names = [name for name, _ in model.named_parameters()]
        self.live: list[Tensor] = list(model.parameters())
        self.shadow: list[Tensor] = [parameter.detach().clone() for parameter in self.live] if rule else self.live

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after update `step`, counted from 1."""
        if self.rule:
            self.rule.follow(step, self.shadow, self.live)

    @torch.no_grad()
    def checkpoint(self, step: int) -> None:
        """Make ready for a validation after this update."""
        if self.rule:
            self.rule.checkpoint(step, self.shadow, self.live)

    def forget(self) -> None:
        """Make ready for what `remember` puts back."""
        if self.rule:
            self.rule.kept.clear()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model holds the averaged weights for the length of the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def named(self) -> dict[str, Tensor]:
        """The averaged weights by name."""
        return {name: tensor.detach() for name, tensor in zip(self.names, self.shadow, strict=True)}

    def remembered(self) -> Iterator[tuple[str, Tensor]]:
        """All that a state must keep: the average, and what its rule still needs."""
        if self.rule:
            yield from ((f"average.{name}", tensor) for name, tensor in self.named().items())
            for slot, tensors in sorted(self.rule.kept.items()):
                yield from ((f"checkpoint.{slot}.{name}", t) for name, t in zip(self.names, tensors, strict=True))

    @torch.no_grad()
    def remember(self, place: str, tensor: Tensor, parallelize: LayOut) -> None:
        """Put back one tensor that `remembered` gave under this name, laid out as the model's are."""
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
        goal.copy_(parallelize(tensor, goal))

    def _swap(self) -> None:
        if self.rule:
            for parameter, other in zip(self.live, self.shadow, strict=True):
                parameter.data, other.data = other.data, parameter.data


def make_average(model: nn.Module, settings: TrainSettings) -> WeightAverage:
    """As the settings say: the last checkpoints, a moving average, or none."""
    if settings.average_checkpoints:
        return WeightAverage(model, CheckpointAverage(settings.average_checkpoints, settings.validate_every))
    return WeightAverage(model, ExponentialMovingAverage(settings.ema_decay) if settings.ema_decay else None)
