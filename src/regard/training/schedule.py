"""The learning rate as a function of the update."""

from __future__ import annotations

import math

from regard.config import Train


def learning_rate(step: int, settings: Train) -> float:
    """Rate of update `step`, counted from 1: a linear climb over the warm-up, then the fall that was asked for.

    The inverse square root is Vaswani et al.'s, scaled so that its peak is `train.learning_rate`.
    """
    peak, warmup = settings.learning_rate, max(settings.warmup, 1)
    if step < warmup:
        return peak * step / warmup
    if settings.schedule == "inverse-sqrt":
        return peak * math.sqrt(warmup / step)
    if settings.schedule == "cosine":
        share = min((step - warmup) / max(settings.max_steps - warmup, 1), 1.0)
        return peak * 0.5 * (1 + math.cos(math.pi * share))
    return peak
