"""The training loop, the same for every task and architecture, on one process or on several.

A step depends only on the recipe, the seed and its number: batches come from a stream that can be entered at any
position, and dropout is seeded by the position of the batch. Therefore a resumed run computes the same numbers as a run
without interruption, and processes that share the batches of a step, or the rows of a batch, compute the same sums as
one process alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.config import TrainSettings
from regard.errors import TrainingError
from regard.layers.auxiliary import Statistics
from regard.layers.dropout import Rows, batch_seed, dropout_rows, set_dropout_strength
from regard.models.base import Network
from regard.run import restore
from regard.training import checkpoint, schedule
from regard.training.checkpoint import TrainingProgress, TrainingState
from regard.training.device import clip_gradients, gather, parallelize
from regard.training.distributed import ProcessGroup
from regard.training.frozen import FrozenRows
from regard.training.loss import Loss, Measures
from regard.training.schedule import ScheduleStage
from regard.training.signals import StopRequest

MAX_ROLLBACKS = 3
DIVERGED = 4.0  # times the expected initial loss
LOSS_MEMORY = 0.05  # weight of the newest step in the moving average of the loss
KEPT_FIELDS = ("seconds", "flops", "tokens", "rate_factor", "rate_for", "rollbacks")
"""Fields of the progress that do not change when training returns to an older checkpoint."""


class TrainUnit(Protocol):
    """Interface that a task implements for the training loop: batches, loss, FLOPs and validation."""

    stage: ScheduleStage
    """Set by the loop before each step."""

    def batch(self, position: int) -> Any:
        """The batch with the index `position` in the endless stream of training batches."""

    def rows(self, batch: Any, first: int, every: int) -> tuple[Any, Rows | None]:
        """Return a batch of the rows `first`, `first + every`, ... of `batch`, and the indices of these rows.

        One of several processes computes these rows. If a batch cannot be divided, return the whole batch and None.
        """

    def mark(self, position: int) -> tuple[int, int]:
        """Index of the epoch that contains the batch `position`, and the position of the first batch of this epoch."""

    def enter(self, epoch: int, start: int) -> None:
        """Prepare for batches of the epoch `epoch` and later; `start`: position of the first batch of this epoch."""

    def loss(self, model: Any, batch: Any) -> Loss:
        """The loss of the model, summed over the tokens of the batch."""

    def flops(self, batch: Any) -> float:
        """Number of FLOPs of a forward and backward pass on this batch."""

    def validate(self, model: Any) -> Validation:
        """Score the model on the validation data."""


@dataclass(frozen=True)
class Validation:
    """The result of a validation: scores by name, and sample outputs."""

    scores: Mapping[str, float]
    score: float
    """The score that selects the best weights; higher is better."""
    samples: Sequence[Mapping[str, str]] = ()
    loss: float | None = None
    """The validation loss. For patience, a lower loss is an improvement even if the score is not higher."""


@dataclass(frozen=True)
class StepMetrics:
    """Numbers of one training step for the logs: loss, learning rate, gradient norm, tokens, seconds and FLOPs."""

    step: int
    loss: float
    rate: float
    norm: float
    tokens: int
    seconds: float
    flops: float
    layers: Mapping[str, Statistics] = field(default_factory=dict)
    """Numbers of layers, such as the load of experts, in the last batch of this process; by the name of the layer."""


class BatchPart(NamedTuple):
    """The part of a batch that one process computes: some rows or all; `position` is the index of the batch."""

    position: int
    batch: Any
    rows: Rows | None
    """The rows that this process computes; None if it computes all rows."""

    @property
    def weight(self) -> float:
        """Factor on the loss: 1, or 0 if the batch has fewer rows than processes and this process gets none of them."""
        return self.rows.weight if self.rows else 1.0


KeepWeights = Callable[[dict[str, Tensor]], None]


class TrainingLog:
    """Base class of the training logs (metrics file, terminal, TensorBoard); subclasses override its empty methods.

    `on_start` is called when training starts or continues, `on_message` with messages to the user, `close` when
    training has ended or was interrupted.
    """

    def on_start(self, progress: TrainingProgress) -> None: ...
    def on_step(self, metrics: StepMetrics, progress: TrainingProgress) -> None: ...
    def on_validation(self, validation: Validation, progress: TrainingProgress, *, best: bool) -> None: ...
    def on_message(self, message: str, progress: TrainingProgress) -> None: ...
    def close(self) -> None: ...


def processor_time() -> float:
    """Seconds of CPU time of this process, divided by the number of threads that compute."""
    return time.process_time() / torch.get_num_threads()


class Trainer:
    """Trains a model, saves checkpoints, and returns to an older checkpoint if the loss diverges."""

    def __init__(
        self, model: Network, unit: TrainUnit, settings: TrainSettings, checkpoints: Path, logs: Sequence[TrainingLog],
        group: ProcessGroup | None = None, frozen: Mapping[str, Sequence[int]] | None = None,
    ):  # fmt: skip
        """`frozen`: indices of the rows that are not trained, by the name of the parameter."""
        self.model, self.unit, self.settings = model, unit, settings
        self.folder, self.logs = checkpoints, logs
        self.group = group or ProcessGroup()
        self.parallel = parallelize(model, unit.loss, settings, self.group)
        self.state = TrainingState(model, settings, self.group)
        self.frozen = FrozenRows(model, frozen or {})
        self.progress = TrainingProgress()
        self._now = processor_time if settings.clock == "processor" else time.monotonic
        self._clock = self._now()
        self._statistics: Mapping[str, Statistics] = {}
        self._stop_requested = False
        self._rollbacks = 0
        """Number of rollbacks in this session; a resumed run, perhaps with a lower rate, starts with 0."""
        self._returned_to: int | None = None
        """Step of the checkpoint to which the last rollback returned; None after a later checkpoint was saved."""

    def fit(self, keep: KeepWeights, stop: StopRequest) -> TrainingProgress:
        """Train until settings or `stop` end training. At each best validation, `keep` gets the averaged weights."""
        is_new = not self.load()
        for log in self.logs:
            log.on_start(self.progress)
        try:
            if is_new:
                self._start(keep)
            self._train(keep, stop)
            return self.progress
        finally:
            for log in self.logs:
                log.close()

    def _start(self, keep: KeepWeights) -> None:
        """Before the first step: with `train.validate_at_start`, validate the initial weights; save a checkpoint."""
        self._clock = self._now()
        is_valid = self.validate(keep) if self.settings.validate_at_start else True
        if not (is_valid and self.save()):
            raise TrainingError("the initial weights contain NaN or infinity; use another initial run or train.seed")

    def _train(self, keep: KeepWeights, stop: StopRequest) -> None:
        schedule.recompute_stopping_step(self.progress, self.settings)
        rates = f"{self.settings.learning_rate:g}, {self.settings.muon_learning_rate:g} for matrices"
        if self.progress.rate_for not in ("", rates):  # the user has changed the learning rates
            self.progress.rate_factor = 1.0
        self.progress.rate_for = rates
        self.progress.stopped = schedule.reason_to_stop(self.progress, self.settings)
        self._clock = self._now()
        while not self.progress.stopped:
            if not self.train_step(stop):
                self.roll_back(self.progress.step + 1)
                continue
            step, ended = self.progress.step, schedule.reason_to_stop(self.progress, self.settings)
            if (ended or step % self.settings.validate_every == 0) and not self.validate(keep):
                self.roll_back(step, "the validation loss is not finite")
                continue
            cooldown_starts = self._start_cooldown()
            self.progress.stopped = ended or schedule.reason_to_stop(self.progress, self.settings)
            due = cooldown_starts or self.progress.stopped or self._stop_requested
            due = due or step % self.settings.checkpoint_every == 0
            if due and not self.save():
                self.roll_back(step, "the weights are not finite")
                continue
            if self._stop_requested:
                break

    def train_step(self, stop: StopRequest) -> bool:
        """Train one step; if the loss is not finite or has diverged, return False and do not update the weights.

        If `stop.requested` is True in any process, all processes note that training must stop after this step.
        """
        started = self._now()
        progress, settings, group = self.progress, self.settings, self.group
        strength = schedule.regularization_strength(progress.step + 1, settings)
        self.unit.stage = ScheduleStage(strength, progress.cooldown_until > 0)
        parts = self._parts()
        (tokens,) = group.sum(sum(part.weight * part.batch.target_tokens for part in parts))
        self.model.train()
        set_dropout_strength(self.model, strength)
        loss, measured = self._backward(parts, tokens)
        self.frozen.clear_gradients()
        norm = clip_gradients(self.model, settings.clip_norm)
        flops = sum(part.weight * self.unit.flops(part.batch) for part in parts)
        seconds = group.is_first * (self._now() - self._clock)
        loss, flops, bad, stops, seconds, *sums = group.sum(
            loss, flops, not math.isfinite(norm), stop.requested, seconds, *chain.from_iterable(measured.values())
        )
        mean, self._stop_requested = loss / tokens, stops > 0
        if progress.first_loss is None:
            progress.first_loss = mean
        if bad or not math.isfinite(mean) or mean > DIVERGED * progress.first_loss:
            return False
        self._clock = self._now()
        rate = schedule.learning_rate(progress.step + 1, settings, (progress.cooldown_from, progress.cooldown_until))
        rate *= progress.rate_factor
        self.state.optimizer.set_rate(rate)
        with self.frozen.kept():
            self.state.optimizer.step()
        progress.step += 1
        self.state.average.update(progress.step)
        progress.position += settings.gradient_accumulation
        progress.seconds += seconds
        progress.tokens += int(tokens)
        progress.flops += flops
        memory = max(LOSS_MEMORY, 1 / progress.step)
        progress.loss += memory * (mean - progress.loss)
        for name, total, count in zip(measured, sums[::2], sums[1::2], strict=True):
            before = progress.measures.get(name, 0.0)
            progress.measures[name] = before + memory * (total / max(count, 1.0) - before)
        took, layers = self._now() - started, self._statistics
        metrics = StepMetrics(progress.step, mean, rate, norm, int(tokens), took, flops, layers)
        for log in self.logs:
            log.on_step(metrics, progress)
        return True

    def _parts(self) -> list[BatchPart]:
        """What this process computes in the next step: whole batches, or some rows of each batch.

        Whole batches if the number of batches per step is a multiple of the number of processes.
        """
        unit, rank, size = self.unit, self.group.rank, self.group.size
        positions = range(self.progress.position, self.progress.position + self.settings.gradient_accumulation)
        if len(positions) % size == 0:
            return [BatchPart(place, unit.batch(place), None) for place in positions if place % size == rank]
        return [BatchPart(place, *unit.rows(unit.batch(place), rank, size)) for place in positions]

    def _backward(self, parts: Sequence[BatchPart], tokens: float) -> tuple[float, Measures]:
        """Compute the gradients of the mean loss; return the sum of this process's losses without label smoothing.

        Also returns the sums of the other numbers that the losses report. `tokens`: number of target tokens of the step
        in all processes.
        """
        self.state.optimizer.zero_grad()
        total, measured = 0.0, dict[str, tuple[float, float]]()
        for number, part in enumerate(parts, 1):
            torch.manual_seed(batch_seed(self.settings.seed, part.position))
            with self.parallel.summing(number == len(parts)), dropout_rows(part.rows):
                loss = self.parallel.loss(part.batch)
                (loss.smoothed / tokens * (part.weight * self.group.size)).backward()  # size: gradients are averaged
            total += part.weight * float(loss.plain)
            for name, (amount, count) in loss.measures.items():
                before = measured.get(name, (0.0, 0.0))
                measured[name] = before[0] + part.weight * amount, before[1] + part.weight * count
            self._statistics = loss.statistics
        self.parallel.zero_key_bias_gradients()
        return total, measured

    def validate(self, keep: KeepWeights) -> bool:
        """Score the averaged weights; call `keep` with the best so far. Return False if a number is not finite."""
        progress, group = self.progress, self.group
        self.state.average.checkpoint(progress.step)
        self.frozen.correct(self.state.average)
        self.model.eval()
        with self._averaged() as model, torch.no_grad():
            validation = self.unit.validate(model)
        (seconds,) = group.sum(group.is_first * (self._now() - self._clock))
        self._clock = self._now()
        progress.seconds += seconds
        if not schedule.is_finite(validation.score, validation.loss):
            return False
        best = schedule.is_best(progress, validation.score)
        if best:
            weights = self.state.collect(self.state.average.named().items())
            if not self.state.all_finite(weights):
                return False
            if group.is_first:
                keep(weights)
        schedule.count_validation(progress, self.settings, validation.score, validation.loss)
        improved = progress.improved_step == progress.step and not progress.cooldown_until
        if improved and self.settings.cooldown and self.settings.patience:
            self.save(self.folder / checkpoint.BEST, kept=1)
        for log in self.logs:
            log.on_validation(validation, progress, best=best)
        return True

    @contextmanager
    def _averaged(self) -> Iterator[Network]:
        """Yields, for a `with` block, the model with averaged weights; if it is sharded, a copy that is not sharded."""
        whole = self.parallel.whole
        if whole is None:
            with self.state.average.applied():
                yield self.model
            return
        averages = {name: gather(tensor).cpu() for name, tensor in self.state.average.named().items()}
        restore(whole, averages, where="the average")
        yield whole.to(self.model.output.weight.device)
        whole.cpu()

    def _start_cooldown(self) -> bool:
        """Start the cooldown of the learning rate if the end of training is near; True if it starts now.

        If it starts because patience is exhausted, first return to the checkpoint of the last improvement.
        """
        progress, settings = self.progress, self.settings
        reason = schedule.cooldown_reason(progress, settings)
        if not settings.cooldown or progress.cooldown_until or not reason:
            return False
        load_best = partial(checkpoint.load_best, now=progress)
        if reason == schedule.patience_exhausted(progress, settings) and self.load(load_best):
            self._carry_over(progress, *KEPT_FIELDS, "validations_without_improvement")
            reason = f"{reason}: back to step {self.progress.step:,}"  # later steps were overfitting
        steps = schedule.start_cooldown(self.progress, settings)
        self._log(f"{reason}: cooldown over {steps:,} steps")
        return True

    def _carry_over(self, now: TrainingProgress, *names: str) -> None:
        """Copy the fields `names` from `now`, the progress before a checkpoint was loaded, to the loaded progress."""
        self.progress = replace(self.progress, **{name: getattr(now, name) for name in names})

    def roll_back(self, failed: int, problem: str = "the loss diverged") -> None:
        """Return to the last checkpoint and halve the learning rate, because of `problem` at the step `failed`.

        If no checkpoint was saved since the last rollback, the checkpoint may already be bad; then return to the one
        before it. The best score does not change, because the best weights stay in the run folder.
        """
        now = self.progress
        self._rollbacks += 1
        now.rollbacks, now.rate_factor = now.rollbacks + 1, now.rate_factor / 2
        if self._rollbacks > MAX_ROLLBACKS:
            raise TrainingError(
                f"the loss diverged {self._rollbacks} times, the last time at step {failed}; "
                "set a lower train.learning_rate or a longer train.warmup_steps"
            )
        suspect = self._returned_to
        if suspect is None or not self.load(partial(checkpoint.load_checkpoint, before=suspect)):
            self.load()
        elif self.group.is_first:
            checkpoint.remove_checkpoints(self.folder, suspect)
        self._returned_to = self.progress.step
        self._carry_over(now, *KEPT_FIELDS, "best_score", "best_step")
        self._log(f"{problem} at step {failed}: back to {self.progress.step}, learning rate x {now.rate_factor:g}")

    def save(self, folder: Path | None = None, kept: int = checkpoint.KEPT) -> bool:
        """Write a checkpoint and keep the newest `kept`; if a weight or moment is not finite, only return False."""
        tensors = self.state.tensors()
        if not self.state.all_finite(tensors):
            return False
        self.progress.epoch, self.progress.epoch_start = self.unit.mark(self.progress.position)
        if self.group.is_first:
            checkpoint.save_checkpoint(folder or self.folder, tensors, self.progress, kept)
        if folder is None:
            self._returned_to = None
        return True

    def load(self, find: Callable[[Path], checkpoint.Loaded | None] = checkpoint.load_checkpoint) -> bool:
        """Load the checkpoint that `find(folder)` returns, into all processes; return False if `find` returns None."""
        found = find(self.folder) if self.group.is_first else None
        known = self.group.once(lambda: None if found is None else (found[1], found[2]))
        if known is None:
            return False
        self.progress, notes = known
        self.unit.enter(self.progress.epoch, self.progress.epoch_start)
        self.state.load(self.group.tensors(found[0] if found else {}))
        for note in notes:
            self._log(note)
        return True

    def _log(self, message: str) -> None:
        for log in self.logs:
            log.on_message(message, self.progress)
