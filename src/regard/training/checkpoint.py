"""States to resume from: two files each, written atomically, verified by checksum, the last two kept.

checkpoints/00001500.safetensors   weights, their average, the optimizer's moments
checkpoints/00001500.json          where training stands, and the checksum of the tensors; written last
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from safetensors.torch import load, save
from torch import Tensor

from regard.errors import RunError
from regard.files import write_atomically

KEPT = 2
BEST = "best"
"""Folder among the states for that of the last validation that was better, to go back to."""


@dataclass
class TrainingProgress:
    """Where training stands. Together with the tensors and the recipe it decides every bit of what follows."""

    step: int = 0
    """Updates done."""
    position: int = 0
    """Batches taken from the endless stream."""
    epoch: int = 0
    """The epoch, counted from 0, that this position falls into: with `epoch_start` it saves planning those before."""
    epoch_start: int = 0
    """The position of its first batch."""
    seconds: float = 0.0
    """Time spent training and validating, over all sessions."""
    flops: float = 0.0
    """Arithmetic spent, over all sessions."""
    tokens: int = 0
    """Target tokens seen."""
    loss: float = 0.0
    """Loss a token, a moving average over some twenty updates."""
    best_score: float | None = None
    """The best validation so far, higher is better."""
    best_step: int = 0
    """The update at which it was."""
    best_score_since_reset: float | None = None
    """The best score that patience knows of; what was reached under other conditions is forgotten."""
    best_loss_since_reset: float | None = None
    """The lowest loss that it knows of."""
    improved_step: int = 0
    """The update of the last validation that was better in something, by its score or its loss, or had as good a score:
    what patience goes back to."""
    validations_without_improvement: int = 0
    """Validations since one was better."""
    cooldown_from: int = 0
    """The update after which the learning rate falls to zero; 0 while it is not known."""
    cooldown_until: int = 0
    """The update at which it is zero."""
    cooldown_for: str = ""
    """The end that this was planned for."""
    first_loss: float | None = None
    """What "exploding" is measured against: a usual loss, or that of the first update where none is known."""
    rate_factor: float = 1.0
    """Halved each time training had to go back."""
    rate_for: str = ""
    """The learning rates that it belongs to; with others it starts at 1 again."""
    rollbacks: int = 0
    """How often it had to."""
    stopped: str = ""
    """Why training ended; empty while it has not."""


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], progress: TrainingProgress, kept: int = KEPT) -> None:
    """Write a state. All but the last few are removed, and those of later updates: training went back from there."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder}: cannot write a state ({error.strerror}); the run folder may have vanished") from None
    content = save({name: tensor.detach().contiguous() for name, tensor in tensors.items()})
    stem = folder / f"{progress.step:08d}"
    write_atomically(stem.with_suffix(".safetensors"), content)
    record = {"progress": asdict(progress), "checksum": _checksum(content)}
    write_atomically(stem.with_suffix(".json"), json.dumps(record, indent=1).encode())
    stems = _stems(folder)
    if stem not in stems:
        raise RunError(f"{folder}: the state that was just written is gone; the run folder was moved or removed")
    now = stems.index(stem) + 1
    _remove(stems[: max(now - kept, 0)] + stems[now:])


Loaded = tuple[dict[str, Tensor], TrainingProgress, list[str]]
"""A state, and a line for each newer one that was damaged."""


def load_checkpoint(folder: Path, before: int | None = None) -> Loaded | None:
    """The newest sound state; None where there is no state at all. `before`: of an earlier update, or None."""
    notes: list[str] = []
    for stem in reversed(_stems(folder)):
        if before is not None and int(stem.name) >= before:
            continue
        try:
            tensors, progress = _read(stem)
        except (OSError, ValueError, KeyError, TypeError) as error:
            notes.append(f"state {stem.name} is damaged ({error}); going back to the one before")
            continue
        return tensors, progress, notes
    if notes and before is None:
        raise RunError(f"{folder}: no state is sound: {'; '.join(notes)}; start the run anew")
    return None


def remove_checkpoints(folder: Path, first: int) -> None:
    """Remove the states of this update and of later ones."""
    _remove([stem for stem in _stems(folder) if int(stem.name) >= first])


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a state, sound or not."""
    return bool(_stems(folder))


def last_step(folder: Path) -> int:
    """Updates that the newest state has made, sound or not; 0 where there is none."""
    stems = _stems(folder)
    return int(stems[-1].name) if stems else 0


def load_best(folder: Path, now: TrainingProgress) -> Loaded | None:
    """The state of the last validation that was better in something; None where it was not kept, or is damaged."""
    try:
        found = load_checkpoint(folder / BEST)
    except RunError:
        return None
    if found is None or found[1].step != now.improved_step:
        return None
    same = (found[1].best_score_since_reset, found[1].best_loss_since_reset) == (
        now.best_score_since_reset,
        now.best_loss_since_reset,
    )
    return found if same else None


def _read(stem: Path) -> tuple[dict[str, Tensor], TrainingProgress]:
    record = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    content = stem.with_suffix(".safetensors").read_bytes()
    if _checksum(content) != record["checksum"]:
        raise ValueError("its checksum is wrong")
    known = {field.name for field in fields(TrainingProgress)}
    return load(content), TrainingProgress(**{key: value for key, value in record["progress"].items() if key in known})


def _stems(folder: Path) -> list[Path]:
    return sorted(path.with_suffix("") for path in folder.glob("[0-9]*.json")) if folder.is_dir() else []


def _remove(stems: Iterable[Path]) -> None:
    for stem in stems:
        stem.with_suffix(".json").unlink(missing_ok=True)
        stem.with_suffix(".safetensors").unlink(missing_ok=True)


def _checksum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
