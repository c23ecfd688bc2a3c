"""The loop: one for every task and every architecture.

What happens in update u is decided by the recipe, the seed and u alone: the batches come from a stream that can be
entered anywhere, and dropout is seeded by the batch's place in it. So a run that was killed and resumed computes the
very same numbers as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.config import Train
from regard.errors import TrainingError
from regard.models.base import Seq2Seq
from regard.training.average import Average
from regard.training.loss import Loss
from regard.training.machine import keep_memory
from regard.training.schedule import learning_rate
from regard.training.signals import StopRequest
from regard.training.state import Progress, load_state, save_state

MAX_ROLLBACKS = 3
EXPLODED = 4.0  # times the loss of the first update
LOSS_MEMORY = 0.05  # share of the newest update in the loss that is shown


class Task(Protocol):
    """What the loop must know of a task."""

    def batch(self, position: int) -> Any:
        """The batch at this place of the endless stream."""

    def loss(self, model: Seq2Seq, batch: Any) -> Loss:
        """Sum of the loss over the batch."""

    def flops(self, batch: Any) -> float:
        """Arithmetic of one forward and backward pass."""

    def validate(self, model: Seq2Seq) -> Validation:
        """How good the model is on held-out data."""


@dataclass(frozen=True)
class Validation:
    """Scores by name, the one that counts (higher is better), and samples to look at."""

    scores: Mapping[str, float]
    score: float
    samples: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True)
class Update:
    """One update, for those who watch."""

    step: int
    loss: float
    rate: float
    norm: float
    tokens: int
    seconds: float
    flops: float


Keep = Callable[[dict[str, Tensor]], None]


class Watcher(Protocol):
    """Someone who is told what happens: the metrics file, the terminal."""

    def began(self, progress: Progress) -> None:
        """Training starts or goes on from here."""

    def updated(self, update: Update, progress: Progress) -> None:
        """An update was made."""

    def validated(self, validation: Validation, progress: Progress, *, best: bool) -> None:
        """A validation was made."""

    def noticed(self, message: str, progress: Progress) -> None:
        """Something happened that the user should know."""

    def close(self) -> None:
        """Training ended or was interrupted."""


class Trainer:
    """Model, optimizer, average and progress: everything that changes while training."""

    def __init__(self, model: Seq2Seq, task: Task, settings: Train, folder: Path, watchers: Sequence[Watcher]):
        self.model, self.task, self.settings = model, task, settings
        self.folder, self.watchers = folder, watchers
        self.optimizer = make_optimizer(model, settings)
        self.average = Average(model, settings.average)
        self.progress = Progress()

    def fit(self, keep: Keep, stop: StopRequest) -> Progress:
        """Train until something ends it. `keep(weights)` is called with the weights of each best validation."""
        keep_memory()
        if not self.restore():
            self.save()
        for watcher in self.watchers:
            watcher.began(self.progress)
        try:
            self._train(keep, stop)
        finally:
            for watcher in self.watchers:
                watcher.close()
        return self.progress

    def _train(self, keep: Keep, stop: StopRequest) -> None:
        self.progress.stopped = self._reason_to_stop()  # a run that had ended may have been given a later end
        clock = time.monotonic()
        while not self.progress.stopped:
            if not self.update():
                self.go_back()
                continue
            now = time.monotonic()
            self.progress.seconds += now - clock
            clock = now
            step = self.progress.step
            finished = step >= self.settings.max_steps or self._out_of_time()
            if finished or step % self.settings.validate_every == 0:
                self.validate(keep)
                clock = time.monotonic()
            self.progress.stopped = self._reason_to_stop()
            if self.progress.stopped or stop.requested or step % self.settings.state_every == 0:
                self.save()
            if stop.requested:
                break

    def update(self) -> bool:
        """One update of the weights; False when the loss is not a number or has exploded."""
        began = time.monotonic()
        progress, settings = self.progress, self.settings
        batches = [self.task.batch(progress.position + part) for part in range(settings.accumulate)]
        tokens = sum(batch.target_tokens for batch in batches)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        plain = 0.0
        for part, batch in enumerate(batches):
            torch.manual_seed(_mix(settings.seed, progress.position + part))
            loss = self.task.loss(self.model, batch)
            (loss.smoothed / tokens).backward()
            plain += float(loss.plain)
        mean = plain / tokens
        if progress.first_loss is None:
            progress.first_loss = mean
        norm = clip(self.model, settings.clip)
        if not (math.isfinite(mean) and math.isfinite(norm)) or mean > EXPLODED * progress.first_loss:
            return False
        rate = learning_rate(progress.step + 1, settings) * progress.rate_factor
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        flops = sum(self.task.flops(batch) for batch in batches)
        progress.step += 1
        progress.position += settings.accumulate
        progress.tokens += tokens
        progress.flops += flops
        progress.loss += max(LOSS_MEMORY, 1 / progress.step) * (mean - progress.loss)
        self.average.update(progress.step)
        update = Update(progress.step, mean, rate, norm, tokens, time.monotonic() - began, flops)
        for watcher in self.watchers:
            watcher.updated(update, progress)
        return True

    def validate(self, keep: Keep) -> None:
        """Score the averaged weights and keep them if they are the best so far."""
        progress = self.progress
        self.model.eval()
        with self.average.applied(), torch.no_grad():
            validation = self.task.validate(self.model)
        before = -math.inf if progress.best_score is None else progress.best_score
        best = validation.score >= before  # of equals, the one that was trained longer
        if validation.score != before:  # an equal one says nothing: early on, BLEU stays at zero for a while
            progress.worse_in_a_row = 0 if best else progress.worse_in_a_row + 1
        if best:
            progress.best_score, progress.best_step = validation.score, progress.step
            keep(self.average.named())
        for watcher in self.watchers:
            watcher.validated(validation, progress, best=best)

    def _reason_to_stop(self) -> str:
        if self.settings.patience and self.progress.worse_in_a_row >= self.settings.patience:
            return f"no better validation in {self.settings.patience}"
        if self.progress.step >= self.settings.max_steps:
            return f"{self.settings.max_steps:,} updates made"
        return f"{self.settings.minutes:g} minutes spent" if self._out_of_time() else ""

    def _out_of_time(self) -> bool:
        return bool(self.settings.minutes) and self.progress.seconds >= 60 * self.settings.minutes

    def go_back(self) -> None:
        """After a loss that is not a number: the last good state, half the learning rate."""
        rollbacks, factor = self.progress.rollbacks + 1, self.progress.rate_factor / 2
        if rollbacks > MAX_ROLLBACKS:
            raise TrainingError(
                f"the loss exploded {rollbacks} times, the last at update {self.progress.step + 1}; "
                "set a lower train.learning_rate or a longer train.warmup"
            )
        failed = self.progress.step + 1
        self.restore()
        self.progress.rollbacks, self.progress.rate_factor = rollbacks, factor
        self._notice(f"the loss exploded at update {failed}: back to {self.progress.step}, learning rate x {factor:g}")

    def save(self) -> None:
        """Write a state."""
        tensors: dict[str, Tensor] = {f"weights.{name}": parameter for name, parameter in self.model.named_parameters()}
        if self.settings.average:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.named().items()}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"optimizer.{key}.{name}"] = value
        save_state(self.folder, tensors, self.progress)

    def restore(self) -> bool:
        """Go to the newest sound state; False where there is none."""
        found = load_state(self.folder)
        if found is None:
            return False
        tensors, self.progress, notes = found
        averages = self.average.named()
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(tensors[f"weights.{name}"])
                if self.settings.average:
                    averages[name].copy_(tensors[f"average.{name}"])
                moments = {key: tensors.get(f"optimizer.{key}.{name}") for key in ("step", "exp_avg", "exp_avg_sq")}
                self.optimizer.state[parameter] = {key: value for key, value in moments.items() if value is not None}
        for note in notes:
            self._notice(note)
        return True

    def _notice(self, message: str) -> None:
        for watcher in self.watchers:
            watcher.noticed(message, self.progress)


def make_optimizer(model: Seq2Seq, settings: Train) -> torch.optim.AdamW:
    """Adam with decoupled weight decay on matrices; biases and norms do not decay."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon, fused=True)


def clip(model: Seq2Seq, limit: float) -> float:
    """Shorten the gradient to this norm; returns the norm it had."""
    gradients: list[Tensor] = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if limit:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm)
    return float(norm)


def _mix(seed: int, position: int) -> int:
    """A generator seed for one batch: neighbouring batches and neighbouring seeds get unrelated ones."""
    mixed = (seed * 0x9E3779B97F4A7C15 + position * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 31)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (mixed ^ (mixed >> 29)) & (2**63 - 1)
