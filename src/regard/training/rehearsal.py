"""The largest batch first: if memory runs out, it does so before the first update and not after an hour."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from regard.config import Train
from regard.errors import TrainingError
from regard.models.base import Network
from regard.training.device import LossOf, choose_device
from regard.training.loss import Loss


class Rehearsed(Protocol):
    """What a rehearsal must know of a task."""

    def largest(self) -> Any:
        """The batch that takes the most memory."""

    def loss(self, model: Any, batch: Any) -> Loss:
        """Sum of the loss over the batch."""


def rehearse(model: Network, task: Rehearsed, settings: Train) -> None:
    """Forward and backward on the largest batch; weights and gradients are left as they were."""
    device = choose_device(settings, 0)
    batch = task.largest()
    model.to(device).train()
    try:
        LossOf(model, task.loss, settings, device)(batch).smoothed.backward()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        halves = f"train.batch_tokens={settings.batch_tokens // 2} --set train.accumulate={2 * settings.accumulate}"
        raise TrainingError(
            f"out of memory with {settings.batch_tokens:,} tokens in a batch; the same in halves: --set {halves}"
        ) from None
    finally:
        model.zero_grad(set_to_none=True)


def is_out_of_memory(error: RuntimeError) -> bool:
    """The GPU's error has a type, the CPU's only a text."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
