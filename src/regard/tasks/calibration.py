"""Probabilities that can be taken at their word: scores divided by a temperature found on held-out documents.

Guo et al. 2017: one number, which changes no decision. The likelihood of the right labels has one maximum in it. As
Platt (1999) has it, the right labels are taken for a little less than sure, the less the fewer documents there are:
else a handful that are all right would make the temperature as low as can be, and everything sure.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from regard.training.label_loss import label_loss

LOWEST, HIGHEST = 0.05, 20.0
ROUNDS = 60
ENOUGH_DOCUMENTS = 30
"""Fewer cannot tell one temperature from another."""


def find_temperature(logits_BL: Tensor, target_BL: Tensor, *, several: bool) -> float | None:
    """The temperature under which the right labels are likeliest; None where there are too few documents."""
    if len(logits_BL) < ENOUGH_DOCUMENTS:
        return None
    logits_BL = logits_BL.double()
    doubt = 2 / (len(logits_BL) + 2)

    def surprise(log_temperature: float) -> float:
        scaled_BL = logits_BL / math.exp(log_temperature)
        return float(label_loss(scaled_BL, target_BL, several=several, smoothing=doubt).smoothed)

    return math.exp(_lowest(surprise, math.log(LOWEST), math.log(HIGHEST)))


def to_probabilities(logits_BL: Tensor, temperature: float, *, several: bool) -> Tensor:
    """Of one label: shares of one; of several: each on its own."""
    scaled_BL = logits_BL.double() / temperature
    return scaled_BL.sigmoid() if several else scaled_BL.softmax(-1)


def _lowest(height: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is lowest: thirds are cut off."""
    for _ in range(ROUNDS):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, other) if height(one) <= height(other) else (one, high)
    return (low + high) / 2
