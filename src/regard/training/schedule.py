"""The schedule of a training: learning rate, strength of the regularization, and the end of training.

Training ends after a number of steps, minutes or FLOPs, or when validations no longer improve (patience). Before the
end the learning rate falls to zero: the cooldown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.config import TrainSettings
from regard.training.checkpoint import TrainingProgress


@dataclass(frozen=True)
class ScheduleStage:
    """Strength of regularization, and whether the cooldown has started; set by the training loop before each step."""

    strength: float = 1.0
    """Share of the full dropout; below 1 during `train.regularization_warmup`."""
    cooldown: bool = False
    """Whether the cooldown has started."""

    @property
    def augmentation_strength(self) -> float:
        """Factor on subword regularization; 0 during the cooldown, because the trained model is used without it."""
        return 0.0 if self.cooldown else self.strength


def learning_rate(step: int, settings: TrainSettings, cooldown: tuple[int, int] = (0, 0)) -> float:
    """The learning rate of the step number `step` (from 1): a linear warm-up, then the schedule `train.schedule`.

    The inverse-square-root schedule of Vaswani et al. 2017 is scaled so that its peak is `train.learning_rate`.
    `cooldown`: the steps at which the cooldown starts and ends, between which the rate is also multiplied by a factor
    that falls linearly from 1 to 0; (0, 0) if the cooldown has not started.
    """
    peak, warmup = settings.learning_rate, max(settings.warmup_steps, 1)
    first, last = cooldown
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


def regularization_strength(step: int, settings: TrainSettings) -> float:
    """Factor on dropout and subword regularization: rises to 1 over the first `train.regularization_warmup` steps."""
    return min(step / settings.regularization_warmup, 1.0) if settings.regularization_warmup else 1.0


def reason_to_stop(progress: TrainingProgress, settings: TrainSettings) -> str:
    """The reason why training ends now, as text; empty if training continues."""
    if progress.step >= settings.max_steps:
        return f"{settings.max_steps:,} steps done"
    if settings.max_minutes and progress.seconds >= 60 * settings.max_minutes:
        return f"{settings.max_minutes:g} minutes spent"
    if settings.max_flops and progress.flops >= settings.max_flops:
        return f"{settings.max_flops:.3g} FLOPs computed"
    if progress.cooldown_until and progress.step >= progress.cooldown_until:
        return f"{patience_exhausted(progress, settings) or cooldown_reason(progress, settings)}, then the cooldown"
    return "" if settings.cooldown else patience_exhausted(progress, settings)


def ends_by_patience_only(settings: TrainSettings) -> bool:
    """Whether only patience ends training, because no limit of steps, minutes or FLOPs is set."""
    has_budget = settings.max_minutes or settings.max_flops
    return bool(settings.patience) and not has_budget and settings.max_steps == TrainSettings.max_steps


def cooldown_reason(progress: TrainingProgress, settings: TrainSettings) -> str:
    """The reason to start the cooldown now, as text; empty if it should not start yet."""
    before = 1 - settings.cooldown
    if progress.step >= before * settings.max_steps:
        return f"{progress.step:,} of {settings.max_steps:,} steps done"
    if settings.max_minutes and progress.seconds >= before * 60 * settings.max_minutes:
        return f"{progress.seconds / 60:.1f} of {settings.max_minutes:g} minutes spent"
    if settings.max_flops and progress.flops >= before * settings.max_flops:
        return f"{progress.flops:.3g} of {settings.max_flops:.3g} FLOPs computed"
    return patience_exhausted(progress, settings)


def patience_exhausted(progress: TrainingProgress, settings: TrainSettings) -> str:
    """A text that says that the last `train.patience` validations brought no improvement; empty if one of them did."""
    exhausted = settings.patience and progress.validations_without_improvement >= settings.patience
    return f"no better validation in {settings.patience}" if exhausted else ""


def is_finite(score: float, loss: float | None) -> bool:
    """Whether score and loss of a validation are finite numbers; a loss of None counts as finite."""
    return math.isfinite(score) and (loss is None or math.isfinite(loss))


def is_best(progress: TrainingProgress, score: float) -> bool:
    """Whether a validation score is finite and at least as high as the best so far."""
    return math.isfinite(score) and (progress.best_score is None or score >= progress.best_score)


def count_validation(
    progress: TrainingProgress, settings: TrainSettings, score: float, loss: float | None = None
) -> None:
    """Update the best score and the count for patience in `progress`. Scores that are not finite change nothing.

    Patience counts from the last validation with a better score or a lower loss: the score of a few hundred sentences
    varies by chance while the loss still falls. The count restarts when dropout has reached its full strength
    (`train.regularization_warmup`), because more regularization makes the scores worse at first.
    """
    if not is_finite(score, loss):
        return
    before, now = progress.step - settings.validate_every, progress.step
    if regularization_strength(now, settings) == 1 > regularization_strength(before, settings):
        _restart_patience(progress)
    if is_best(progress, score):
        progress.best_score, progress.best_step = score, progress.step
    best = progress.best_score_since_reset
    better = best is None or score > best
    progress.best_score_since_reset = score if best is None else max(score, best)
    if loss is not None and (progress.best_loss_since_reset is None or loss < progress.best_loss_since_reset):
        progress.best_loss_since_reset, better = loss, True
    nothing_yet = score == best == 0  # BLEU may be zero for a while at the start of training
    if not progress.cooldown_until and not nothing_yet:
        progress.validations_without_improvement = 0 if better else progress.validations_without_improvement + 1
    if better or score == best:
        progress.improved_step = progress.step


def start_cooldown(progress: TrainingProgress, settings: TrainSettings) -> int:
    """Start the cooldown at the current step; return its number of steps.

    The cooldown is the last share `train.cooldown` of all steps, but ends at the limit of steps, minutes or FLOPs.
    """
    steps = min(round(progress.step * settings.cooldown / (1 - settings.cooldown)), settings.max_steps - progress.step)
    if settings.max_minutes and progress.seconds:
        left = max(60 * settings.max_minutes - progress.seconds, 0) * progress.step / progress.seconds
        steps = min(steps, round(left))
    if settings.max_flops and progress.flops:
        left = max(settings.max_flops - progress.flops, 0) * progress.step / progress.flops
        steps = min(steps, round(left))
    progress.cooldown_from, progress.cooldown_until = progress.step, progress.step + max(steps, 1)
    progress.cooldown_for = _end_settings(settings)
    return max(steps, 1)


def recompute_stopping_step(progress: TrainingProgress, settings: TrainSettings) -> None:
    """On resuming, cancel the cooldown if a limit (`train.max_steps`, `max_minutes`, `max_flops`, `patience`) changed.

    A training that ended by patience continues only if `train.patience` was increased. Then validations without
    improvement are counted from 0, because at the full learning rate no validation is as good as after the cooldown.
    """
    planned = progress.cooldown_for in ("", _end_settings(settings)) and cooldown_reason(progress, settings)
    if not progress.cooldown_until or planned or patience_exhausted(progress, settings):
        return
    progress.cooldown_from, progress.cooldown_until, progress.cooldown_for = 0, 0, ""
    _restart_patience(progress)


def _restart_patience(progress: TrainingProgress) -> None:
    progress.best_score_since_reset = progress.best_loss_since_reset = None
    progress.validations_without_improvement = 0


def _end_settings(settings: TrainSettings) -> str:
    flops = f", {settings.max_flops:g} FLOPs" if settings.max_flops else ""
    return f"{settings.max_steps} steps, {settings.max_minutes:g} minutes, patience {settings.patience}{flops}"
