"""The abstract class `Training`, which every task implements: what the training of a task consists of.

`tasks/<task>/training.py` ends in e.g. `TRAINING = TagTraining()`. `tasks/train.py` calls its methods:

    read, plan                                  to decide the settings
    prepare, open_data, card                    to make a run; open_data also to resume it
    train_unit                                  for the training loop
    held_out, tune, predictor, score, complete  after training
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
"""Settings by section and name."""
HELD_OUT_EXAMPLES = 200
"""Maximum number of held-out examples that stay in a finished run."""


class Examples(Protocol):
    """The training data, read but not yet prepared."""

    def __len__(self) -> int: ...

    def describe(self) -> str:
        """One line with the number of examples in each part."""


class Trainable(TrainUnit, Protocol):
    """A `TrainUnit` that can also make its largest batch, for the memory check before training."""

    def largest(self) -> Any:
        """The batch that takes the most memory."""


class Workload(NamedTuple):
    """Amount of computation in an epoch, for the estimate of time and memory."""

    amounts: Mapping[str, float]
    """Number of units of computation in an epoch, by the name of the unit, e.g. "token" (see `Network.examples`)."""
    length: float
    """Mean length of an example, in tokens."""
    passes: int = 1
    """Forward passes per batch."""
    steps: float = 0.0
    """Number of batches; 0 if it is not known."""


class Scored(NamedTuple):
    """Scores of a held-out part, and the answers of the model, for the report."""

    scores: Json
    answers: Any = None


ExamplesOf = TypeVar("ExamplesOf", bound=Examples)
DataOf = TypeVar("DataOf")


class Training(ABC, Generic[ExamplesOf, DataOf]):
    """Training for one task.

    `ExamplesOf` is the type that `read` returns, `DataOf` the type that `open_data` returns. `DataOf` must have the
    attributes `train`, `valid` and `test`.
    """

    result: ClassVar[str] = ""
    """Format of the line with the scores of a part, e.g. "accuracy {accuracy:.2%} on {documents:,} documents"."""

    @abstractmethod
    def read(self, recipe: Recipe) -> ExamplesOf:
        """Read the files and hold out the validation and test parts."""

    @abstractmethod
    def plan(self, examples: ExamplesOf, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """Choose the settings that are not in `given`. `where` names the origin of the settings in error messages."""

    @abstractmethod
    def workload(self, recipe: Recipe, examples: ExamplesOf) -> Workload:
        """The amount of computation in an epoch."""

    @abstractmethod
    def prepare(self, run: Run, recipe: Recipe, examples: ExamplesOf, log: Log, base: Run | None) -> None:
        """Write vocabularies (those of the run `base`, if given) and the encoded data into the run.

        Also writes the sizes that the constructor of the network needs, e.g. of the vocabulary.
        """

    @abstractmethod
    def open_data(self, run: Run, log: Log) -> DataOf:
        """Open the data that `prepare` wrote. If its encoded data was removed after training, encode it again."""

    @abstractmethod
    def train_unit(self, recipe: Recipe, data: DataOf, model: Network, group: ProcessGroup | None = None) -> Trainable:
        """Batches, loss and validation for the training loop. Usually a class, e.g. `train_unit = TagTrainUnit`."""

    @abstractmethod
    def expected_initial_loss(self, recipe: Recipe, data: DataOf) -> float:
        """The approximate loss of an untrained model. If the loss is far higher, training has diverged."""

    @abstractmethod
    def card(self, recipe: Recipe, data: DataOf, base: Run | None) -> Json:
        """Entries of card.json about the data."""

    # Most tasks do not override the methods below.

    def sizes(self, recipe: Recipe, examples: ExamplesOf) -> Mapping[str, int]:
        """Expected sizes, e.g. of the vocabulary, that the constructor of the network needs, for the estimate."""
        return {"vocabulary": recipe.tokenizer.vocab_size}

    def result_line(self, scores: Json) -> str:
        return self.result.format(**scores)

    def check(self, recipe: Recipe) -> None:
        """Raise an error if settings do not fit together. `tasks.train.check` makes the checks that all tasks share."""

    def notes(self, recipe: Recipe) -> Sequence[str]:
        """Notes that the user sees before training starts."""
        return ()

    def tune(self, run: Run, data: DataOf, log: Log) -> Json | None:
        """Tune settings on the validation part and write them into the recipe.

        Returns the values that card.json records as tuned, or None if the task tunes nothing.
        """
        return None

    def predictor(self, run: Run, data: DataOf, log: Log) -> Any:
        """The predictor that is scored after training, e.g. a Translator."""
        return tasks.load(run)

    def held_out(self, data: Any) -> Sequence[Any]:
        """Held-out examples that stay in the run, as JSON objects: test or, if there are none, validation examples."""
        return [one._asdict() for one in (data.test or data.valid)[:HELD_OUT_EXAMPLES]]

    def score(self, predictor: Any, examples: Any) -> Scored:
        """Score the answers of the predictor to a held-out part."""
        return Scored(predictor.score(examples).as_dict())

    def complete(self, run: Run, data: DataOf) -> None:
        """Write further files of a finished run."""

    def folder(self, recipe: Recipe) -> Path:
        """The default run folder, named after the training file and the architecture."""
        name = Path(recipe.data.train[0].source).name.partition(".")[0]
        return Path("runs") / (f"{name}-{recipe.model.arch}" if name else recipe.model.arch)

    def estimate(self, recipe: Recipe, examples: ExamplesOf, machine: Machine) -> Estimate:
        """Estimated size, memory and time of training on this machine."""
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
