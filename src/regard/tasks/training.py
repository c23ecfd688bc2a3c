"""The training contract of a task: the abstract class `Training`, which every task implements.

`tasks/<task>/training.py` ends in e.g. `TRAINING = TagTraining()`. `tasks/train.py` does what all tasks share:

    read, plan                 when the settings are decided
    prepare, open_data, card   when a run is made; open_data again when it is resumed
    train_unit                 for the training loop
    tune, predictor, score     when training has ended; then held_out, report.html and `complete`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import torch

from regard import models, tasks
from regard.config import Recipe
from regard.models.base import Network, count_parameters
from regard.run import Run
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost
from regard.training.plan import (
    COPIES,
    FLOAT,
    PROCESS,
    SHARE_OF_PEAK,
    SHARE_OF_SHORT_PEAK,
    Estimate,
    PlannedSetting,
)
from regard.training.schedule import ends_by_patience_only
from regard.training.trainer import TrainUnit

Json = dict[str, Any]
Log = Callable[[str], None]
Tables = Mapping[str, Mapping[str, Any]]
"""Settings as nested tables."""
HELD_OUT_EXAMPLES = 200
"""Held-out examples that stay in a finished run."""


class Examples(Protocol):
    """The training data, read but not yet prepared."""

    def __len__(self) -> int: ...

    def describe(self) -> str:
        """How many examples each part has, in a line."""


class Trainable(TrainUnit, Protocol):
    """What the training loop, and the memory check before it, need."""

    def largest(self) -> Any:
        """The batch that takes the most memory."""


class Workload(NamedTuple):
    """Amount of work in an epoch, for the estimate."""

    amounts: Mapping[str, float]
    """How many of each unit whose cost the network knows (`Network.examples`)."""
    length: float
    """Mean length of an example, in tokens."""
    passes: int = 1
    """Passes through the network per batch."""
    steps: float = 0.0
    """Batches; 0: not known."""


class Scored(NamedTuple):
    """Scores of a held-out part, and the answers that they were computed from, for the report."""

    scores: Json
    answers: Any = None


ExamplesOf = TypeVar("ExamplesOf", bound=Examples)
DataOf = TypeVar("DataOf")


class Training(ABC, Generic[ExamplesOf, DataOf]):
    """Training for one task. `ExamplesOf` is what its files are read as; `DataOf` has `train`, `valid` and `test`."""

    result: ClassVar[str] = ""
    """Format of the line with the scores of a part, e.g. "accuracy {accuracy:.2%}  on {documents:,} documents"."""

    @abstractmethod
    def read(self, recipe: Recipe) -> ExamplesOf:
        """Read the files and hold out the validation and test parts."""

    @abstractmethod
    def plan(self, examples: ExamplesOf, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """Choose the settings that `given` leaves open. `where` names the settings in errors."""

    @abstractmethod
    def sizes(self, recipe: Recipe, examples: ExamplesOf) -> Mapping[str, int]:
        """The sizes of the network that training will make, as far as they are known before; for the estimate."""

    @abstractmethod
    def workload(self, recipe: Recipe, examples: ExamplesOf) -> Workload:
        """Amount of work in an epoch."""

    @abstractmethod
    def prepare(self, run: Run, recipe: Recipe, examples: ExamplesOf, log: Log, base: Run | None) -> None:
        """Write into the run what training reads: vocabularies (from `base`, if given), store, `run.write_sizes`."""

    @abstractmethod
    def open_data(self, run: Run, log: Log) -> DataOf:
        """Read what `prepare` wrote. A finished run has removed its store: then it is made again."""

    @abstractmethod
    def train_unit(self, recipe: Recipe, data: DataOf, model: Network, group: ProcessGroup | None = None) -> Trainable:
        """What the training loop trains on. Usually a class: `train_unit = TagTrainUnit`."""

    @abstractmethod
    def expected_initial_loss(self, recipe: Recipe, data: DataOf) -> float:
        """About the loss of a model that guesses. If the loss is far above it, training has diverged."""

    @abstractmethod
    def card(self, recipe: Recipe, data: DataOf, base: Run | None) -> Json:
        """Facts about the data, for the card."""

    # Usually enough as they are.

    def result_line(self, scores: Json) -> str:
        return self.result.format(**scores)

    def check(self, recipe: Recipe) -> None:
        """Refuse settings that do not fit together; `tasks.train.check` has checked what all tasks share."""

    def notes(self, recipe: Recipe) -> Sequence[str]:
        """What the user should know before training starts."""
        return ()

    def tune(self, run: Run, data: DataOf, log: Log) -> Json | None:
        """Tune settings on the validation part and write them into the recipe. The result is for the card."""
        return None

    def predictor(self, run: Run, data: DataOf, log: Log) -> Any:
        """The trained run, to be scored."""
        return tasks.load(run)

    def parts(self, data: Any) -> Mapping[str, Any]:
        """The held-out parts by name; empty ones are not scored."""
        return {"valid": data.valid, "test": data.test}

    def held_out(self, data: Any) -> Sequence[Any]:
        """Some held-out examples that stay in the run, as JSON objects: of the test part, if there is one."""
        return [one._asdict() for one in (data.test or data.valid)[:HELD_OUT_EXAMPLES]]

    def score(self, predictor: Any, examples: Any) -> Scored:
        """Compare the answers to a held-out part with the right ones."""
        return Scored(predictor.score(examples).as_dict())

    def complete(self, run: Run, data: DataOf) -> None:
        """Write what else a finished run has."""

    def folder(self, recipe: Recipe) -> Path:
        """Where a run is made if the user names no folder: after the data file and the architecture."""
        name = Path(recipe.data.train[0].source).name.partition(".")[0]
        return Path("runs") / (f"{name}-{recipe.model.arch}" if name else recipe.model.arch)

    def estimate(self, recipe: Recipe, examples: ExamplesOf, machine: Machine) -> Estimate:
        """What training will take on this machine."""
        with torch.device("meta"):
            model = models.build(recipe.model, **self.sizes(recipe, examples))
        train, work = recipe.train, self.workload(recipe, examples)
        flops = work.passes * count_cost(model).training(**work.amounts)
        parameters = count_parameters(model)
        kept = work.passes * train.batch_tokens * FLOAT * recipe.model.kept_per_token(work.length)
        is_short = train.precision == "bfloat16"
        speed = machine.peak * (machine.bfloat16_speedup * SHARE_OF_SHORT_PEAK if is_short else SHARE_OF_PEAK)
        has_end = work.steps and not ends_by_patience_only(train)
        epochs = train.max_steps * train.gradient_accumulation / work.steps if has_end else 0.0
        return Estimate(parameters, PROCESS + COPIES * FLOAT * parameters + kept, flops, flops / speed, epochs)


def training_of(task: str) -> Training[Any, Any]:
    training: Training[Any, Any] = tasks.part(tasks.find(task).name, "training").TRAINING
    return training
