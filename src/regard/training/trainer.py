"""The loop: one for every task and every architecture, on one process or on many.

What happens in update u is decided by the recipe, the seed and u alone: the batches come from a stream that can be
entered anywhere, and dropout is seeded by the batch's place in it. So a run that was killed and resumed computes the
very same numbers as one that was not; and processes that share the batches of an update, or the rows of a batch, sum
up to what one alone would compute.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from regard.config import TrainSettings
from regard.errors import TrainingError
from regard.layers.dropout import Rows, set_dropout_strength, sharing
from regard.models.base import Network
from regard.run import restore
from regard.training.averaging import make_average
from regard.training.checkpoint import (
    BEST,
    KEPT,
    Loaded,
    TrainingProgress,
    load_best,
    load_checkpoint,
    remove_checkpoints,
    save_checkpoint,
)
from regard.training.device import gather, parallelize, scatter
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss
from regard.training.optimizer import make_optimizer
from regard.training.schedule import (
    ScheduleStage,
    cooldown_reason,
    count_validation,
    is_finite,
    learning_rate,
    patience_exhausted,
    reason_to_stop,
    recompute_stopping_step,
    start_cooldown,
    strength,
)
from regard.training.signals import StopRequest

MAX_ROLLBACKS = 3
EXPLODED = 4.0  # times the usual loss
LOSS_MEMORY = 0.05  # share of the newest update in the loss that is shown
SPENT = ("seconds", "flops", "tokens")
"""What stays spent where training goes back."""


class TrainUnit(Protocol):
    """What the loop must know of a task."""

    stage: ScheduleStage
    """Set by the loop before each update."""

    def batch(self, position: int) -> Any:
        """The batch at this place of the endless stream."""

    def rows(self, batch: Any, first: int, every: int) -> tuple[Any, Rows | None]:
        """The part of a batch that one of several processes computes: every so many rows, from the first on.

        None instead of the rows: all of it, where it cannot be divided.
        """

    def mark(self, position: int) -> tuple[int, int]:
        """The epoch that a position falls into, and the position of its first batch."""

    def enter(self, epoch: int, start: int) -> None:
        """Make ready for positions from this epoch on."""

    def loss(self, model: Any, batch: Any) -> Loss:
        """Sum of the loss over the batch."""

    def flops(self, batch: Any) -> float:
        """Arithmetic of an update on this batch, as things stand."""

    def validate(self, model: Any) -> Validation:
        """How good the model is on held-out data."""


@dataclass(frozen=True)
class Validation:
    """Scores by name, the one that counts (higher is better), and samples to look at.

    A sample has texts by name: what the model read, what it made of it, and what else there is to compare.
    """

    scores: Mapping[str, float]
    score: float
    samples: Sequence[Mapping[str, str]] = ()
    loss: float | None = None
    """What patience asks too, where the score goes up and down by chance."""


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


class UpdatePart(NamedTuple):
    """What one process computes of a batch."""

    position: int
    batch: Any
    rows: Rows | None
    """Which rows; None: all."""

    @property
    def weight(self) -> float:
        """0 for a part that only takes part."""
        return self.rows.weight if self.rows else 1.0


Keep = Callable[[dict[str, Tensor]], None]


class TrainingLog(Protocol):
    """Someone who is told what happens: the metrics file, the terminal."""

    def on_start(self, progress: TrainingProgress) -> None:
        """Training starts or goes on from here."""

    def on_step(self, update: Update, progress: TrainingProgress) -> None:
        """An update was made."""

    def on_validation(self, validation: Validation, progress: TrainingProgress, *, best: bool) -> None:
        """A validation was made."""

    def on_message(self, message: str, progress: TrainingProgress) -> None:
        """Something happened that the user should know."""

    def close(self) -> None:
        """Training ended or was interrupted."""


class Trainer:
    """Model, optimizer, average and progress: everything that changes while training."""

    def __init__(
        self, model: Network, task: TrainUnit, settings: TrainSettings, folder: Path, logs: Sequence[TrainingLog],
        group: ProcessGroup | None = None,
    ):  # fmt: skip
        self.model, self.task, self.settings = model, task, settings
        self.folder, self.logs = folder, logs
        self.group = group or ProcessGroup()
        self.layout = parallelize(model, task.loss, settings, self.group)
        self.optimizer = make_optimizer(model, settings)
        self.average = make_average(model, settings)
        self.progress = TrainingProgress()
        self._clock = time.monotonic()
        self._leaving = False
        self._rollbacks = 0
        """Of this session: one that is resumed, perhaps with a lower rate, may try again."""
        self._returned_to: int | None = None
        """The update whose state an explosion led back to; None once a later state was saved."""

    def fit(self, keep: Keep, stop: StopRequest) -> TrainingProgress:
        """Train until something ends it. `keep(weights)` is called with the weights of each best validation."""
        if not self.restore() and not self.save():
            raise TrainingError("the weights to start from are not finite; take them from another copy of the run")
        for log in self.logs:
            log.on_start(self.progress)
        try:
            self._train(keep, stop)
        finally:
            for log in self.logs:
                log.close()
        return self.progress

    def _train(self, keep: Keep, stop: StopRequest) -> None:
        recompute_stopping_step(self.progress, self.settings)
        self._set_rates()
        self.progress.stopped = reason_to_stop(self.progress, self.settings)
        self._clock = time.monotonic()
        while not self.progress.stopped:
            if not self.update(stop):
                self.go_back(self.progress.step + 1)
                continue
            step, ended = self.progress.step, reason_to_stop(self.progress, self.settings)
            if (ended or step % self.settings.validate_every == 0) and not self.validate(keep):
                self.go_back(step, "the validation loss is not finite")
                continue
            cools = self._cool_down()
            self.progress.stopped = ended or reason_to_stop(self.progress, self.settings)
            due = cools or self.progress.stopped or self._leaving or step % self.settings.checkpoint_every == 0
            if due and not self.save():
                self.go_back(step, "the weights are not finite")
                continue
            if self._leaving:
                break

    def _set_rates(self) -> None:
        """Use the learning rates of the settings as they are if they have changed since training was stopped."""
        rates = f"{self.settings.learning_rate:g}, {self.settings.muon_learning_rate:g} for matrices"
        if self.progress.rate_for not in ("", rates):
            self.progress.rate_factor = 1.0
        self.progress.rate_for = rates

    def update(self, stop: StopRequest) -> bool:
        """One update of the weights; False when the loss is not a number or has exploded."""
        began = time.monotonic()
        progress, settings, group = self.progress, self.settings, self.group
        stage = ScheduleStage(strength(progress.step + 1, settings), progress.cooldown_until > 0)
        self.task.stage = stage
        parts = self._parts()
        (tokens,) = group.sum(sum(part.weight * part.batch.target_tokens for part in parts))
        self.model.train()
        set_dropout_strength(self.model, stage.strength)
        self.optimizer.zero_grad()
        plain = 0.0
        for number, part in enumerate(parts, 1):
            torch.manual_seed(_mix(settings.seed, part.position))
            with self.layout.summing(number == len(parts)), sharing(part.rows):
                loss = self.layout.loss(part.batch)
                (loss.smoothed / tokens * (part.weight * group.size)).backward()  # gradients are means over the group
            plain += part.weight * float(loss.plain)
        self.layout.zero_key_bias_gradients()
        norm = clip(self.model, settings.clip_norm)
        flops = sum(part.weight * self.task.flops(part.batch) for part in parts)
        plain, flops, bad, asked, seconds = group.sum(
            plain, flops, not math.isfinite(norm), stop.requested, group.is_first * (time.monotonic() - self._clock)
        )
        mean, self._leaving = plain / tokens, asked > 0
        if progress.first_loss is None:
            progress.first_loss = mean
        if bad or not math.isfinite(mean) or mean > EXPLODED * progress.first_loss:
            return False
        self._clock = time.monotonic()
        cooling = (progress.cooldown_from, progress.cooldown_until)
        rate = learning_rate(progress.step + 1, settings, cooling) * progress.rate_factor
        self.optimizer.set_rate(rate)
        self.optimizer.step()
        progress.step += 1
        progress.position += settings.gradient_accumulation
        progress.seconds += seconds
        progress.tokens += int(tokens)
        progress.flops += flops
        progress.loss += max(LOSS_MEMORY, 1 / progress.step) * (mean - progress.loss)
        self.average.update(progress.step)
        update = Update(progress.step, mean, rate, norm, int(tokens), time.monotonic() - began, flops)
        for log in self.logs:
            log.on_step(update, progress)
        return True

    def _parts(self) -> list[UpdatePart]:
        """What this process computes of an update: whole batches if they can be dealt out evenly, else rows of each."""
        task, rank, size = self.task, self.group.rank, self.group.size
        positions = range(self.progress.position, self.progress.position + self.settings.gradient_accumulation)
        if len(positions) % size == 0:
            return [
                UpdatePart(position, task.batch(position), None) for position in positions if position % size == rank
            ]
        return [UpdatePart(position, *task.rows(task.batch(position), rank, size)) for position in positions]

    def validate(self, keep: Keep) -> bool:
        """Score the averaged weights and keep them if they are the best so far; False when they have exploded."""
        progress, group = self.progress, self.group
        self.average.checkpoint(progress.step)
        self.model.eval()
        with self._averaged() as model, torch.no_grad():
            validation = self.task.validate(model)
        (seconds,) = group.sum(group.is_first * (time.monotonic() - self._clock))
        self._clock = time.monotonic()
        progress.seconds += seconds
        if not is_finite(validation.score, validation.loss):
            return False
        best = count_validation(progress, self.settings, validation.score, validation.loss)
        if best:
            weights = self._gather(self.average.named().items())
            if not self._all_finite(weights):
                return False
            if group.is_first:
                keep(weights)
        if progress.improved_step == progress.step and not progress.cooldown_until:
            self._save_better()
        for log in self.logs:
            log.on_validation(validation, progress, best=best)
        return True

    @contextmanager
    def _averaged(self) -> Iterator[Network]:
        """The model with the averaged weights; where it is sharded, a whole one with them."""
        whole = self.layout.whole
        if whole is None:
            with self.average.applied():
                yield self.model
            return
        averages = {name: gather(tensor).cpu() for name, tensor in self.average.named().items()}
        restore(whole, averages, where="the average")
        yield whole.to(self.model.output.weight.device)
        whole.cpu()

    def _cool_down(self) -> bool:
        """Let the rate fall to zero from here on, once the end is near; True if that begins now."""
        progress, settings = self.progress, self.settings
        if not settings.cooldown or progress.cooldown_until or not (reason := cooldown_reason(progress, settings)):
            return False
        if reason == patience_exhausted(progress, settings) and self._return_to_better():
            reason = f"{reason}: back to step {self.progress.step:,}"
        updates = start_cooldown(self.progress, settings)
        self._notice(f"{reason}: cooldown over {updates:,} steps")
        return True

    def _save_better(self) -> None:
        """Keep the state of this validation, where patience may want to go back to it."""
        if self.settings.cooldown and self.settings.patience:
            self.save(self.folder / BEST, kept=1)

    def _return_to_better(self) -> bool:
        """Go to the state of the last better validation: what came after was learnt by heart."""
        now = self.progress
        if not self.restore(partial(load_best, now=now)):
            return False
        self._carry(now, *SPENT, "validations_without_improvement", "rate_factor", "rate_for", "rollbacks")
        return True

    def _carry(self, now: TrainingProgress, *names: str) -> None:
        """After going back, keep these as they were before."""
        self.progress = replace(self.progress, **{name: getattr(now, name) for name in names})

    def go_back(self, failed: int, what: str = "the loss exploded") -> None:
        """After an explosion in update `failed`: return to the last state, with half the learning rate.

        If no state was saved since the last explosion, that state may itself be exploded: return to the one before it.
        """
        now = self.progress
        self._rollbacks += 1
        now.rollbacks, now.rate_factor = now.rollbacks + 1, now.rate_factor / 2
        if self._rollbacks > MAX_ROLLBACKS:
            raise TrainingError(
                f"the loss exploded {self._rollbacks} times, the last at step {failed}; "
                "set a lower train.learning_rate or a longer train.warmup_steps"
            )
        suspect = self._returned_to
        if suspect is None or not self.restore(partial(load_checkpoint, before=suspect)):
            self.restore()
        elif self.group.is_first:
            remove_checkpoints(self.folder, suspect)
        self._returned_to = self.progress.step
        self._carry(now, *SPENT, "rate_factor", "rate_for", "rollbacks")
        back, rate = self.progress.step, f"learning rate x {now.rate_factor:g}"
        self._notice(f"{what} at step {failed}: back to {back}, {rate}")

    def save(self, folder: Path | None = None, kept: int = KEPT) -> bool:
        """Write a state; False, and nothing is written, when it holds a number that is not finite."""
        tensors = self._gather(self._named_tensors())
        if not self._all_finite(tensors):
            return False
        self.progress.epoch, self.progress.epoch_start = self.task.mark(self.progress.position)
        if self.group.is_first:
            save_checkpoint(folder or self.folder, tensors, self.progress, kept)
        if folder is None:
            self._returned_to = None
        return True

    def _all_finite(self, gathered: Mapping[str, Tensor]) -> bool:
        """Whether every number is finite in what the first process has gathered."""
        (bad,) = self.group.sum(not all(bool(tensor.isfinite().all()) for tensor in gathered.values()))
        return not bad

    def _named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Everything in a state, by its name there."""
        for name, parameter in self.model.named_parameters():
            yield f"weights.{name}", parameter
            for key, value in self.optimizer.state_of(parameter).items():
                yield f"optimizer.{key}.{name}", value
        yield from self.average.remembered()

    def _gather(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """Tensors as the first process writes them: whole. The others help to put them together and keep none."""
        whole = {}
        for name, tensor in tensors:
            gathered = gather(tensor.detach())
            if self.group.is_first:
                whole[name] = gathered.cpu()
        return whole

    def restore(self, load: Callable[[Path], Loaded | None] = load_checkpoint) -> bool:
        """Go to the newest sound state, which the first process reads; False where there is none."""
        found = load(self.folder) if self.group.is_first else None
        known = self.group.once(lambda: None if found is None else (found[1], found[2]))
        if known is None:
            return False
        self.progress, notes = known
        self.task.enter(self.progress.epoch, self.progress.epoch_start)
        self._put_back(self.group.tensors(found[0] if found else {}))
        for note in notes:
            self._notice(note)
        return True

    @torch.no_grad()
    def _put_back(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        parameters = dict(self.model.named_parameters())
        self.average.forget()
        kept: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for place, tensor in tensors:
            kind, _, name = place.partition(".")
            if kind == "optimizer":
                key, _, name = name.partition(".")
                is_moment = tensor.dim() > 0  # Adam's count of steps is a number, which is never sharded
                like = parameters[name]
                kept[name][key] = scatter(tensor, like) if is_moment else tensor.to(like.device)
            elif kind == "weights":
                parameters[name].copy_(scatter(tensor, parameters[name]))
            else:
                self.average.remember(place, tensor, scatter)
        for name, parameter in parameters.items():
            self.optimizer.remember(parameter, kept[name])

    def _notice(self, message: str) -> None:
        for log in self.logs:
            log.on_message(message, self.progress)


def clip(model: Network, limit: float) -> float:
    """Shorten the gradient to this norm; returns the norm it had."""
    gradients: list[Tensor] = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = gather(torch.nn.utils.get_total_norm(gradients))
    if limit:
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm)
    return float(norm)


def _mix(seed: int, position: int) -> int:
    """A generator seed for one batch: neighbouring batches and neighbouring seeds get unrelated ones."""
    mixed = (seed * 0x9E3779B97F4A7C15 + position * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 31)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (mixed ^ (mixed >> 29)) & (2**63 - 1)
