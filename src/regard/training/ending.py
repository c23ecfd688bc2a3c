"""When training ends: after so many updates or minutes, or when nothing gets better; and the cooling down before it."""

from __future__ import annotations

import math

from regard.config import Train
from regard.training.schedule import cooling_updates, strength
from regard.training.state import Progress


def reason_to_stop(progress: Progress, settings: Train) -> str:
    """Why training is over, if it is."""
    if progress.step >= settings.max_steps:
        return f"{settings.max_steps:,} updates made"
    if settings.minutes and progress.seconds >= 60 * settings.minutes:
        return f"{settings.minutes:g} minutes spent"
    if progress.cooling_until and progress.step >= progress.cooling_until:
        return f"{no_better(progress, settings) or near_the_end(progress, settings)}, then cooled down"
    return "" if settings.cooldown else no_better(progress, settings)


def by_patience_alone(settings: Train) -> bool:
    """Whether nothing else will end it: then nobody can tell how long it takes."""
    return bool(settings.patience) and not settings.minutes and settings.max_steps == Train.max_steps


def near_the_end(progress: Progress, settings: Train) -> str:
    """Why no more than the cooling down is left, if so."""
    before = 1 - settings.cooldown
    if progress.step >= before * settings.max_steps:
        return f"{progress.step:,} of {settings.max_steps:,} updates made"
    if settings.minutes and progress.seconds >= before * 60 * settings.minutes:
        return f"{progress.seconds / 60:.1f} of {settings.minutes:g} minutes spent"
    return no_better(progress, settings)


def no_better(progress: Progress, settings: Train) -> str:
    """Whether patience has run out."""
    patience = settings.patience
    return f"no better validation in {patience}" if patience and progress.worse_in_a_row >= patience else ""


def is_finite(score: float, loss: float | None) -> bool:
    """Whether a validation can be compared with others."""
    return math.isfinite(score) and (loss is None or math.isfinite(loss))


def count_validation(progress: Progress, settings: Train, score: float, loss: float | None = None) -> bool:
    """Take in a validation; True for the best score so far. Of equals that is the one that was trained longer.

    Patience counts from the last one that was better in something: scores of a few hundred sentences go up and down by
    chance while the loss still falls. When dropout has reached its full strength (`train.ease_in`), it begins anew:
    what is regularised more is worse at first.

    A score or loss that is not finite is never better and changes nothing: no comparison with it means anything.
    """
    if not is_finite(score, loss):
        return False
    if strength(progress.step, settings) == 1 > strength(progress.step - settings.validate_every, settings):
        _forget_rivals(progress)
    before = progress.rival_score
    better = before is None or score > before
    progress.rival_score = score if before is None else max(score, before)
    if loss is not None and (progress.rival_loss is None or loss < progress.rival_loss):
        progress.rival_loss, better = loss, True
    nothing_yet = score == before == 0  # early on, BLEU stays at zero for a while
    if not progress.cooling_until and not nothing_yet:
        progress.worse_in_a_row = 0 if better else progress.worse_in_a_row + 1
    if better or score == before:
        progress.better_step = progress.step
    if progress.best_score is not None and score < progress.best_score:
        return False
    progress.best_score, progress.best_step = score, progress.step
    return True


def begin_cooling(progress: Progress, settings: Train) -> int:
    """Let the learning rate fall to zero from here on; returns over how many updates."""
    updates = cooling_updates(progress.step, settings)
    if settings.minutes and progress.seconds:
        left = max(60 * settings.minutes - progress.seconds, 0) * progress.step / progress.seconds
        updates = min(updates, round(left))
    progress.cooling_from, progress.cooling_until = progress.step, progress.step + max(updates, 1)
    progress.cooling_for = _ends(settings)
    return max(updates, 1)


def heed_another_end(progress: Progress, settings: Train) -> None:
    """Stop cooling down if that was planned for another end than the settings now name. What patience ended stays ended
    until there is more of it. It begins anew then: at the full rate no validation is as good as the cooled ones.
    """
    planned = progress.cooling_for in ("", _ends(settings)) and near_the_end(progress, settings)
    if not progress.cooling_until or planned or no_better(progress, settings):
        return
    progress.cooling_from, progress.cooling_until, progress.cooling_for = 0, 0, ""
    _forget_rivals(progress)


def _forget_rivals(progress: Progress) -> None:
    progress.rival_score, progress.rival_loss, progress.worse_in_a_row = None, None, 0


def _ends(settings: Train) -> str:
    return f"{settings.max_steps} updates, {settings.minutes:g} minutes, patience {settings.patience}"
