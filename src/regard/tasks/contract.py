"""Kinds of runs: what a task brings to training beside the loop, which is one for all.

`tasks/train.py` makes the folder, locks it, resumes, trains and writes the card, and knows no task. Whatever depends on
one is asked of its kind. A new task is a name in `config.Data.task`, a module here, and a line in `KINDS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from regard.config import Recipe
from regard.errors import SettingsError
from regard.models import presets
from regard.models.base import Network
from regard.run import Run
from regard.training.checkpoint import TrainingProgress
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.plan import Estimate, PlannedSetting
from regard.training.trainer import TrainUnit

Log = Callable[[str], None]
Tables = Mapping[str, Mapping[str, Any]]
"""Settings as nested tables."""


class Examples(Protocol):
    """The training data, looked at but not yet prepared."""

    def __len__(self) -> int: ...

    def describe(self) -> str:
        """How the examples are shared out, for people."""


class Trainable(TrainUnit, Protocol):
    """What the loop and the rehearsal before it must know of a task."""

    def largest(self) -> Any:
        """The batch that takes the most memory."""


ExamplesOf = TypeVar("ExamplesOf", bound=Examples)
PreparedOf = TypeVar("PreparedOf")


class Kind(ABC, Generic[ExamplesOf, PreparedOf]):
    """One kind of run. `ExamplesOf` is what its data is read as, `PreparedOf` what training reads."""

    defaults: ClassVar[Tables] = {}
    """Settings that usually differ from those in `config/`; a recipe, the plan and the user go before them."""
    lasting: ClassVar[tuple[str, ...]] = ("task",)
    """Settings of the data that stay when a run is fine-tuned on other data."""
    unit: ClassVar[str] = "tokens"
    """What the loss is summed over, and speed is counted in."""

    @abstractmethod
    def check(self, recipe: Recipe) -> None:
        """Refuse settings that do not suit the task."""

    @abstractmethod
    def read(self, recipe: Recipe) -> ExamplesOf:
        """Look at the training data."""

    @abstractmethod
    def plan(self, examples: ExamplesOf, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """Choose what `given` leaves open. `where` names the settings in errors."""

    @abstractmethod
    def estimate(self, recipe: Recipe, examples: ExamplesOf, machine: Machine) -> Estimate:
        """What training will take."""

    @abstractmethod
    def prepare(self, run: Run, recipe: Recipe, examples: ExamplesOf, log: Log, base: Run | None) -> PreparedOf:
        """Write into the run whatever training reads; vocabularies come from `base`, if there is one."""

    @abstractmethod
    def reopen(self, run: Run, log: Log) -> PreparedOf:
        """What `prepare` made, for going on."""

    @abstractmethod
    def task(
        self, recipe: Recipe, prepared: PreparedOf, model: Network, group: ProcessGroup | None = None
    ) -> Trainable:
        """What the loop trains on."""

    @abstractmethod
    def card(self, recipe: Recipe, prepared: PreparedOf, base: Run | None) -> dict[str, Any]:
        """What the card says of the data before the first step."""

    @abstractmethod
    def finish(self, run: Run, prepared: PreparedOf, progress: TrainingProgress, log: Log) -> None:
        """Tune and score the kept weights, complete the card, write the report, put the training data away."""

    @abstractmethod
    def result(self, run: Run) -> list[str]:
        """How good a finished run is and what can be done with it, in lines for people."""

    @abstractmethod
    def expected_initial_loss(self, recipe: Recipe, prepared: PreparedOf) -> float:
        """About that of guessing; far above it, training has exploded."""

    def notes(self, recipe: Recipe) -> Sequence[str]:
        """What the user should know before training starts."""
        return ()

    def folder(self, recipe: Recipe) -> Path:
        """Where a run goes when nobody says."""
        return Path("runs") / recipe.model.arch


KINDS = {
    "translate": ("regard.tasks.translate.kind", "TranslateTraining"),
    "chat": ("regard.tasks.chat.kind", "ChatTraining"),
    "classify": ("regard.tasks.classify.kind", "ClassifyTraining"),
    "retrieve": ("regard.tasks.retrieve.kind", "RetrieveTraining"),
    "tag": ("regard.tasks.tag.kind", "TagTraining"),
}
"""Where the kind of each task lives; imported when first used."""


@cache
def require_writer(recipe: Recipe) -> None:
    """Refuse architectures that do not write text, and tied embeddings without a joint vocabulary."""
    if recipe.model.kind != "seq2seq":
        known = ", ".join(presets("seq2seq"))
        raise SettingsError(f'model.arch = "{recipe.model.arch}" writes no text; choose from {known}')
    if recipe.model.needs_joint_vocabulary and not recipe.tokenizer.joint:
        raise SettingsError(
            'model.tie_embeddings = "all" needs one vocabulary: set tokenizer.joint = true, or model.tie_embeddings'
        )


def kind_of(task: str) -> Kind[Any, Any]:
    """The kind of this name, as `config.Data.task` has it."""
    if task not in KINDS:
        raise SettingsError(f'data.task = "{task}" cannot be trained yet; choose from {", ".join(KINDS)}')
    module, name = KINDS[task]
    kind: Kind[Any, Any] = getattr(import_module(module), name)()
    return kind
