"""What changes with the update: the learning rate, and how strong the regularisation is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.config import Train


@dataclass(frozen=True)
class Stage:
    """How far training has come, as a task must know it."""

    strength: float = 1.0
    """Share of the full regularisation that what knows little yet is given."""
    cooling: bool = False
    """The rate is falling to its end."""

    @property
    def strain(self) -> float:
        """Share of what makes the task harder than it will be in use; it ends when the rate begins to fall."""
        return 0.0 if self.cooling else self.strength


def learning_rate(step: int, settings: Train, cooling: tuple[int, int] = (0, 0)) -> float:
    """Rate of update `step`, counted from 1: a linear climb over the warm-up, then the fall that was asked for.

    The inverse square root is Vaswani et al.'s, scaled so that its peak is `train.learning_rate`. `cooling`: between
    which updates the rate falls to zero, on top of that; (0, 0) while it is not known when training ends.
    """
    peak, warmup = settings.learning_rate, max(settings.warmup, 1)
    first, last = cooling
    if last and step > first:
        peak *= max(last - step, 0) / (last - first)
    if step < warmup:
        return peak * step / warmup
    if settings.schedule == "inverse-sqrt":
        return peak * math.sqrt(warmup / step)
    if settings.schedule == "cosine":
        share = min((step - warmup) / max(settings.max_steps - warmup, 1), 1.0)
        return peak * 0.5 * (1 + math.cos(math.pi * share))
    return peak


def strength(step: int, settings: Train) -> float:
    """Share of the full dropout and subword sampling in update `step`, counted from 1."""
    return min(step / settings.ease_in, 1.0) if settings.ease_in else 1.0


def cooling_updates(step: int, settings: Train) -> int:
    """How long to cool down if it begins after update `step`, so that it takes the share that was asked for."""
    return min(round(step * settings.cooldown / (1 - settings.cooldown)), settings.max_steps - step)
