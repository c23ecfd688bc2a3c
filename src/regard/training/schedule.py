"""What changes with the update: the learning rate, and how strong the regularisation is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from regard.config import TrainSettings
from regard.training.checkpoint import TrainingProgress


@dataclass(frozen=True)
class ScheduleStage:
    """How far training has come, as a task must know it."""

    strength: float = 1.0
    """Share of the full regularisation that what knows little yet is given."""
    cooling: bool = False
    """The rate is falling to its end."""

    @property
    def augmentation_strength(self) -> float:
        """Share of what makes the task harder than it will be in use; it ends when the rate begins to fall."""
        return 0.0 if self.cooling else self.strength


def learning_rate(step: int, settings: TrainSettings, cooling: tuple[int, int] = (0, 0)) -> float:
    """Rate of update `step`, counted from 1: a linear climb over the warm-up, then the fall that was asked for.

    The inverse square root is Vaswani et al.'s, scaled so that its peak is `train.learning_rate`. `cooling`: between
    which updates the rate falls to zero, on top of that; (0, 0) while it is not known when training ends.
    """
    peak, warmup = settings.learning_rate, max(settings.warmup_steps, 1)
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


def strength(step: int, settings: TrainSettings) -> float:
    """Share of the full dropout and subword sampling in update `step`, counted from 1."""
    return min(step / settings.regularization_warmup, 1.0) if settings.regularization_warmup else 1.0


def cooldown_steps(step: int, settings: TrainSettings) -> int:
    """How long to cool down if it begins after update `step`, so that it takes the share that was asked for."""
    return min(round(step * settings.cooldown / (1 - settings.cooldown)), settings.max_steps - step)


# When training ends: after so many updates or minutes, or when nothing gets better; and the cooling down before it.


def reason_to_stop(progress: TrainingProgress, settings: TrainSettings) -> str:
    """Why training is over, if it is."""
    if progress.step >= settings.max_steps:
        return f"{settings.max_steps:,} steps done"
    if settings.max_minutes and progress.seconds >= 60 * settings.max_minutes:
        return f"{settings.max_minutes:g} minutes spent"
    if progress.cooldown_until and progress.step >= progress.cooldown_until:
        return f"{patience_exhausted(progress, settings) or cooldown_reason(progress, settings)}, then cooled down"
    return "" if settings.cooldown else patience_exhausted(progress, settings)


def ends_by_patience_only(settings: TrainSettings) -> bool:
    """Whether nothing else will end it: then nobody can tell how long it takes."""
    return bool(settings.patience) and not settings.max_minutes and settings.max_steps == TrainSettings.max_steps


def cooldown_reason(progress: TrainingProgress, settings: TrainSettings) -> str:
    """Why no more than the cooling down is left, if so."""
    before = 1 - settings.cooldown
    if progress.step >= before * settings.max_steps:
        return f"{progress.step:,} of {settings.max_steps:,} steps done"
    if settings.max_minutes and progress.seconds >= before * 60 * settings.max_minutes:
        return f"{progress.seconds / 60:.1f} of {settings.max_minutes:g} minutes spent"
    return patience_exhausted(progress, settings)


def patience_exhausted(progress: TrainingProgress, settings: TrainSettings) -> str:
    """Whether patience has run out."""
    patience = settings.patience
    return (
        f"no better validation in {patience}"
        if patience and progress.validations_without_improvement >= patience
        else ""
    )


def is_finite(score: float, loss: float | None) -> bool:
    """Whether a validation can be compared with others."""
    return math.isfinite(score) and (loss is None or math.isfinite(loss))


def count_validation(
    progress: TrainingProgress, settings: TrainSettings, score: float, loss: float | None = None
) -> bool:
    """Take in a validation; True for the best score so far. Of equals that is the one that was trained longer.

    Patience counts from the last one that was better in something: scores of a few hundred sentences go up and down by
    chance while the loss still falls. Counting restarts when dropout has reached its full strength
    (`train.regularization_warmup`): what is regularised more is worse at first.

    A score or loss that is not finite is never better and changes nothing: no comparison with it means anything.
    """
    if not is_finite(score, loss):
        return False
    if strength(progress.step, settings) == 1 > strength(progress.step - settings.validate_every, settings):
        _forget_rivals(progress)
    before = progress.best_score_since_reset
    better = before is None or score > before
    progress.best_score_since_reset = score if before is None else max(score, before)
    if loss is not None and (progress.best_loss_since_reset is None or loss < progress.best_loss_since_reset):
        progress.best_loss_since_reset, better = loss, True
    nothing_yet = score == before == 0  # early on, BLEU stays at zero for a while
    if not progress.cooldown_until and not nothing_yet:
        progress.validations_without_improvement = 0 if better else progress.validations_without_improvement + 1
    if better or score == before:
        progress.improved_step = progress.step
    if progress.best_score is not None and score < progress.best_score:
        return False
    progress.best_score, progress.best_step = score, progress.step
    return True


def start_cooldown(progress: TrainingProgress, settings: TrainSettings) -> int:
    """Let the learning rate fall to zero from here on; returns over how many updates."""
    updates = cooldown_steps(progress.step, settings)
    if settings.max_minutes and progress.seconds:
        left = max(60 * settings.max_minutes - progress.seconds, 0) * progress.step / progress.seconds
        updates = min(updates, round(left))
    progress.cooldown_from, progress.cooldown_until = progress.step, progress.step + max(updates, 1)
    progress.cooldown_for = _ends(settings)
    return max(updates, 1)


def recompute_stopping_step(progress: TrainingProgress, settings: TrainSettings) -> None:
    """Stop cooling down if that was planned for another end than the settings now name. What patience ended stays ended
    until there is more of it. It begins anew then: at the full rate no validation is as good as the cooled ones.
    """
    planned = progress.cooldown_for in ("", _ends(settings)) and cooldown_reason(progress, settings)
    if not progress.cooldown_until or planned or patience_exhausted(progress, settings):
        return
    progress.cooldown_from, progress.cooldown_until, progress.cooldown_for = 0, 0, ""
    _forget_rivals(progress)


def _forget_rivals(progress: TrainingProgress) -> None:
    progress.best_score_since_reset, progress.best_loss_since_reset, progress.validations_without_improvement = (
        None,
        None,
        0,
    )


def _ends(settings: TrainSettings) -> str:
    return f"{settings.max_steps} steps, {settings.max_minutes:g} minutes, patience {settings.patience}"
