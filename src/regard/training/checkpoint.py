"""Checkpoints, from which training resumes exactly: two files each, verified by checksum. The last two are kept.

checkpoints/00001500.safetensors   weights, their average, the optimizer state
checkpoints/00001500.json          progress of training and the checksum of the tensors; written last

trainer.py says why a resumed run computes the same numbers as a run without interruption.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from operator import attrgetter
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from regard.config import TrainSettings
from regard.errors import RunError
from regard.files import write_atomically
from regard.models.base import Network
from regard.training.averaging import make_average
from regard.training.device import gather, scatter
from regard.training.distributed import ProcessGroup
from regard.training.optimizer import make_optimizer

KEPT = 2
BEST = "best"
"""Subfolder with the checkpoint of the last improvement, from which the cooldown starts when patience is exhausted."""


@dataclass
class TrainingProgress:
    """The numbers that a checkpoint stores beside its tensors: step, position in the data, best scores, cooldown.

    These numbers, the tensors and the recipe determine all further steps exactly.
    """

    step: int = 0
    position: int = 0
    """Number of batches taken from the endless stream of training batches."""
    epoch: int = 0
    """Index of the epoch that contains `position`; a resumed run does not compute the batches of earlier epochs."""
    epoch_start: int = 0
    """Position of the first batch of the epoch `epoch`."""
    seconds: float = 0.0
    """Time spent training and validating, over all sessions."""
    flops: float = 0.0
    """Number of operations, over all sessions."""
    tokens: int = 0
    """Number of target tokens trained on."""
    loss: float = 0.0
    """Loss per token, a moving average over about twenty steps."""
    measures: dict[str, float] = field(default_factory=dict)
    """Moving averages of the further numbers that a loss reports (`Loss.measures`), e.g. the mean reward."""
    best_score: float | None = None
    """The best validation score so far; higher is better."""
    best_step: int = 0
    """Step of the best validation score."""
    best_score_since_reset: float | None = None
    """The best score since patience was restarted."""
    best_loss_since_reset: float | None = None
    """The lowest validation loss since patience was restarted."""
    improved_step: int = 0
    """Step of the last validation with a better or equal score or a lower loss."""
    validations_without_improvement: int = 0
    """Number of validations since the last improvement."""
    cooldown_from: int = 0
    """Step after which the learning rate falls to zero; 0 before the cooldown."""
    cooldown_until: int = 0
    """Step at which the learning rate is zero; 0 before the cooldown."""
    cooldown_for: str = ""
    """Values that `max_steps`, `max_minutes`, `max_flops` and `patience` had when the cooldown started."""
    first_loss: float | None = None
    """The expected initial loss, or the loss of the first step; a loss several times higher counts as diverged."""
    rate_factor: float = 1.0
    """Factor on the learning rate; it is halved at each rollback."""
    rate_for: str = ""
    """The learning rates that `rate_factor` applies to; if the user changes them, `rate_factor` is 1 again."""
    rollbacks: int = 0
    stopped: str = ""
    """Why training has ended; empty if it has not."""


class TrainingState:
    """Model, optimizer and averaged weights; converts them to and from the tensors of a checkpoint (never sharded)."""

    def __init__(self, model: Network, settings: TrainSettings, group: ProcessGroup):
        self.model, self.group = model, group
        self.optimizer = make_optimizer(model, settings)
        self.average = make_average(model, settings)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors for a checkpoint by name, as `collect` returns them: weights, optimizer state and average."""
        named: list[tuple[str, Tensor]] = []
        for name, parameter in self.model.named_parameters():
            named.append((f"weights.{name}", parameter))
            named += [(f"optimizer.{key}.{name}", value) for key, value in self.optimizer.state_of(parameter).items()]
        return self.collect([*named, *self.average.tensors()])

    def collect(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """Gather sharded tensors from all processes and copy all to the CPU; return them by name.

        Every process must call this. The first process gets the tensors, the others an empty dictionary.
        """
        whole = {}
        for name, tensor in tensors:
            gathered = gather(tensor.detach())
            if self.group.is_first:
                whole[name] = gathered.cpu()
        return whole

    def all_finite(self, gathered: Mapping[str, Tensor]) -> bool:
        """Whether the tensors from `collect` are finite. Every process must call this; all get the same result."""
        (bad,) = self.group.sum(not all(bool(tensor.isfinite().all()) for tensor in gathered.values()))
        return not bad

    @torch.no_grad()
    def load(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Load a checkpoint: pairs of name and tensor. Every process must pass all pairs, not sharded."""
        parameters = dict(self.model.named_parameters())
        self.average.kept.clear()
        moments: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for place, tensor in tensors:
            kind, _, name = place.partition(".")
            if kind == "optimizer":
                key, _, name = name.partition(".")
                is_moment = tensor.dim() > 0  # Adam's count of steps is a number, which is never sharded
                like = parameters[name]
                moments[name][key] = scatter(tensor, like) if is_moment else tensor.to(like.device)
            elif kind == "weights":
                parameters[name].copy_(scatter(tensor, parameters[name]))
            else:
                self.average.load(place, tensor)
        for name, parameter in parameters.items():
            self.optimizer.load_state(parameter, moments[name])


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], progress: TrainingProgress, kept: int = KEPT) -> None:
    """Write the checkpoint of `progress.step`; remove those of later steps, and the oldest so that `kept` remain."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{folder}: cannot write a checkpoint ({error.strerror}); check that the run folder still exists"
        ) from None
    content = save({name: tensor.detach().contiguous() for name, tensor in tensors.items()})
    stem = folder / f"{progress.step:08d}"
    write_atomically(stem.with_suffix(".safetensors"), content)
    record = {"progress": asdict(progress), "checksum": _checksum(content)}
    write_atomically(stem.with_suffix(".json"), json.dumps(record, indent=1).encode())
    stems = _stems(folder)
    if stem not in stems:
        raise RunError(
            f"{folder}: the checkpoint just written is missing, so the run folder was moved or removed; "
            "resume training in its new place"
        )
    now = stems.index(stem) + 1
    _remove(stems[: max(now - kept, 0)] + stems[now:])


Loaded = tuple[dict[str, Tensor], TrainingProgress, list[str]]
"""Tensors and progress of a checkpoint, and a message for each newer checkpoint that is damaged."""


def load_checkpoint(folder: Path, before: int | None = None) -> Loaded | None:
    """Tensors and progress of the newest valid checkpoint, and a message per damaged newer one; None if there is none.

    With `before`, only checkpoints of steps below `before` are read. If all checkpoints are damaged, the result is None
    with `before`, and an error without `before`.
    """
    damaged: list[str] = []
    for stem in reversed(_stems(folder)):
        if before is not None and int(stem.name) >= before:
            continue
        try:
            tensors, progress = _read(stem)
        except (OSError, ValueError, KeyError, TypeError) as error:
            damaged.append(f"checkpoint {stem.name} is damaged ({error})")
            continue
        return tensors, progress, [f"{problem}; trying the previous one" for problem in damaged]
    if damaged and before is None:
        raise RunError(f"{folder}: no valid checkpoint: {', '.join(damaged)}; train again from the start")
    return None


def remove_checkpoints(folder: Path, first: int) -> None:
    """Remove the checkpoints of the step `first` and of later steps."""
    _remove([stem for stem in _stems(folder) if int(stem.name) >= first])


def has_checkpoint(folder: Path) -> bool:
    """Whether the folder contains a checkpoint, even a damaged one."""
    return bool(_stems(folder))


def last_step(folder: Path) -> int:
    """Training step of the newest checkpoint in the folder, even if it is damaged; 0 if there is none."""
    stems = _stems(folder)
    return int(stems[-1].name) if stems else 0


def load_best(folder: Path, now: TrainingProgress) -> Loaded | None:
    """The checkpoint in the subfolder "best", saved when a validation last improved; None if missing or damaged.

    `now`: the current progress. The result is also None if the checkpoint is not that of the last improvement in `now`.
    """
    try:
        found = load_checkpoint(folder / BEST)
    except RunError:
        return None
    if found is None or found[1].step != now.improved_step:
        return None
    scores = attrgetter("best_score_since_reset", "best_loss_since_reset")
    return found if scores(found[1]) == scores(now) else None


def _read(stem: Path) -> tuple[dict[str, Tensor], TrainingProgress]:
    record = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
    content = stem.with_suffix(".safetensors").read_bytes()
    if _checksum(content) != record["checksum"]:
        raise ValueError(f"{stem.name}.safetensors does not have the checksum that {stem.name}.json states")
    known = {entry.name for entry in fields(TrainingProgress)}
    return load(content), TrainingProgress(**{key: value for key, value in record["progress"].items() if key in known})


def _stems(folder: Path) -> list[Path]:
    return sorted(path.with_suffix("") for path in folder.glob("[0-9]*.json")) if folder.is_dir() else []


def _remove(stems: Iterable[Path]) -> None:
    for stem in stems:
        stem.with_suffix(".json").unlink(missing_ok=True)
        stem.with_suffix(".safetensors").unlink(missing_ok=True)


def _checksum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
