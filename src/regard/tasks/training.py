"""The abstract class `Training`, which every task implements: what the training of a task consists of.

`tasks/<task>/training.py` ends in e.g. `TRAINING = TagTraining()`. `tasks/train.py` calls its methods:

    read, plan                                  to decide the settings
    prepare, open_data, card                    to make a run; open_data also to resume it
    train_unit                                  for the training loop
    held_out, tune, predictor, score, complete  after training
    from_records, comparison_*, texts           to compare a fine-tuned run and new data with the base
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import torch

from regard import models, tasks
from regard.config import Recipe
from regard.config.recipe import to_table
from regard.models.base import Network, count_parameters
from regard.run import Run
from regard.tasks.bootstrap import Metric
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
    """Interface of the examples that `Training.read` returns: training and held-out data, not yet tokenized."""

    def __len__(self) -> int: ...

    def describe(self) -> str:
        """A line for the log with the numbers of training, validation and test examples."""


class Trainable(TrainUnit, Protocol):
    """A `TrainUnit` that can also return its largest batch, for the memory check before training."""

    def largest(self) -> Any:
        """Return the training batch that needs the most memory."""


class Workload(NamedTuple):
    """Amount of computation in one epoch, from which training time and memory are estimated."""

    amounts: Mapping[str, float]
    """Number of units of computation in an epoch, by the name of the unit, e.g. "token" (see `Network.examples`)."""
    length: float
    """Mean length of an example, in tokens."""
    passes: int = 1
    """Forward passes per batch."""
    steps: float = 0.0
    """Number of batches; 0 if it is not known."""


class Scored(NamedTuple):
    """Scores of a model on the validation or test examples, and its outputs (`answers`), which the report shows."""

    scores: Json
    answers: Any = None
    metric: Metric | None = None
    """The main score with the counts of each example, for confidence intervals and for comparisons."""


ExamplesOf = TypeVar("ExamplesOf", bound=Examples)
DataOf = TypeVar("DataOf")


class Training(ABC, Generic[ExamplesOf, DataOf]):
    """Base class of the training of a task: the steps of training that differ between tasks.

    `ExamplesOf` is the type that `read` returns, `DataOf` the type that `open_data` returns. `DataOf` must have the
    attributes `train`, `valid` and `test`.
    """

    unit: ClassVar[str] = ""
    """What the speed of training is counted in, if it is not `Task.unit`."""
    result: ClassVar[str] = ""
    """Format of the line with the scores of a part, e.g. "accuracy {accuracy:.2%} on {documents:,} documents"."""

    @abstractmethod
    def read(self, recipe: Recipe) -> ExamplesOf:
        """Read the files of [data], and hold out validation and test examples."""

    @abstractmethod
    def plan(self, examples: ExamplesOf, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """Choose the settings that the user has not `given`. `where`: file of the given ones, for error messages."""

    @abstractmethod
    def workload(self, recipe: Recipe, examples: ExamplesOf) -> Workload:
        """Estimate the amount of computation in one epoch."""

    @abstractmethod
    def prepare(self, run: Run, recipe: Recipe, examples: ExamplesOf, log: Log, base: Run | None) -> None:
        """Write vocabularies and encoded data into the run, and the sizes that the network's constructor needs.

        In fine-tuning, `base` is the run that is fine-tuned, whose vocabularies are copied.
        """

    @abstractmethod
    def open_data(self, run: Run, log: Log) -> DataOf:
        """Open the data that `prepare` wrote. If its encoded data was removed after training, encode it again."""

    @abstractmethod
    def train_unit(self, recipe: Recipe, data: DataOf, model: Network, group: ProcessGroup | None = None) -> Trainable:
        """Make the `TrainUnit`, which supplies the batches, the loss and the validation.

        Subclasses usually assign the class instead of writing a method: `train_unit = TagTrainUnit`.
        """

    @abstractmethod
    def expected_initial_loss(self, recipe: Recipe, data: DataOf) -> float:
        """Approximate loss of an untrained model. A training loss that is far higher means that training diverged."""

    @abstractmethod
    def card(self, recipe: Recipe, data: DataOf, base: Run | None) -> Json:
        """Entries of card.json about the data. In fine-tuning, `base` is the run that is fine-tuned."""

    # Most tasks do not override the methods below.

    def for_recipe(self, recipe: Recipe) -> Training[Any, Any]:
        """The training of the variant of the task that a recipe is for, found by its data (see `Task.variants`)."""
        return self

    def sizes(self, recipe: Recipe, examples: ExamplesOf) -> Mapping[str, int]:
        """Expected arguments of the network's constructor, from which the number of parameters is estimated."""
        return {"vocabulary": recipe.tokenizer.vocab_size}

    def result_line(self, scores: Json) -> str:
        return self.result.format(**scores)

    def check(self, recipe: Recipe) -> None:
        """Raise an error if settings of this task contradict each other. `tasks.train.check` has the general checks."""

    def inherited(self, base: Run, given: Tables) -> dict[str, Any]:
        """The settings that fine-tuning takes over from the run `base`, by section. `given`: those of the user."""
        table = to_table(base.recipe)
        by_data = (
            "start_from",
            "embeddings",
            "target_embeddings",
            "freeze_embeddings",
            "max_minutes",
            "max_steps",
            "validate_every",
            "checkpoint_every",
            "patience",
            "precision",
        )
        kept = ("task", *tasks.find(base.recipe.data.task).kept)
        table["data"] = {key: table["data"][key] for key in kept}
        table["train"] = {key: value for key, value in table["train"].items() if key not in by_data}
        return table

    def finetuning(self, base: Run, given: Tables) -> list[PlannedSetting]:
        """Settings of [train] that fine-tuning changes, unless the user has `given` them: a third of the rates."""
        before, third = base.recipe.train, f"a third of the rate of {base.folder}"
        chosen = [PlannedSetting("train.learning_rate", before.learning_rate / 3, third)]
        if before.optimizer == "muon":
            chosen.append(PlannedSetting("train.muon_learning_rate", before.muon_learning_rate / 3, third))
        chosen.append(PlannedSetting("train.warmup_steps", 100, "the weights are already trained"))
        if before.regularization_warmup:
            overfits = "a trained model can overfit from the first step"
            chosen.append(PlannedSetting("train.regularization_warmup", 0, overfits))
        if before.r_drop:
            once = "one pass per batch: the weights are already trained"
            chosen.append(PlannedSetting("train.r_drop", 0.0, once))
        return chosen

    # What follows compares a fine-tuned run with its base (`regard.tasks.finetuning`). Without `from_records`, a task
    # makes no comparison; without `texts` and `train_examples`, new data is not compared with the vocabulary.

    def from_records(self, records: Sequence[Json]) -> Sequence[Any]:
        """Held-out examples, as `held_out` stored them, in the form that `score` takes."""
        return ()

    def comparison_context(self, base: Run) -> Json:
        """What else a run needs to be scored on the held-out examples of `base`, as JSON; most tasks need nothing."""
        return {}

    def comparison_predictor(self, run: Run, context: Json) -> Any:
        """The predictor of a run that is scored on the held-out examples of the base. `context`: of the base."""
        return tasks.load(run)

    def train_examples(self, examples: ExamplesOf) -> Iterable[Any]:
        """The training examples, in the form that `texts` takes."""
        return ()

    def texts(self, example: Any) -> tuple[str, ...]:
        """The texts of an example, one for each tokenizer: source and target, or only one."""
        return ()

    def notes(self, recipe: Recipe) -> Sequence[str]:
        """Remarks about the settings, shown to the user before training starts."""
        return ()

    def tune(self, run: Run, data: DataOf, log: Log) -> Json | None:
        """After training, tune settings (e.g. a threshold) on the validation examples, and write them into the recipe.

        Returns the tuned values for card.json, or None if the task tunes nothing.
        """
        return None

    def predictor(self, run: Run, data: DataOf, log: Log) -> Any:
        """The predictor that is scored after training, e.g. a Translator."""
        return tasks.load(run)

    def held_out(self, data: Any) -> Sequence[Any]:
        """Held-out examples to store in the finished run, as JSON objects: of the test, or else of the validation."""
        return [one._asdict() for one in (data.test or data.valid)[:HELD_OUT_EXAMPLES]]

    def score(self, predictor: Any, examples: Any) -> Scored:
        """Score the predictor on `examples`, the validation or test examples."""
        return Scored(predictor.score(examples).as_dict())

    def complete(self, run: Run, data: DataOf) -> None:
        """Write further files into a finished run; most tasks have none."""

    def folder(self, recipe: Recipe) -> Path:
        """The default run folder, named after the training file and the architecture."""
        name = Path(recipe.data.train[0].source).name.partition(".")[0]
        return Path("runs") / (f"{name}-{recipe.model.arch}" if name else recipe.model.arch)

    def estimate(self, recipe: Recipe, examples: ExamplesOf, machine: Machine) -> Estimate:
        """Estimate the number of parameters, and the memory and time of training on this machine."""
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


def training_of(recipe: Recipe) -> Training[Any, Any]:
    """The training of the task of a recipe, for new runs."""
    training: Training[Any, Any] = tasks.part(tasks.find(recipe.data.task).name, "training").TRAINING
    return training.for_recipe(recipe)


def training_of_run(run: Run) -> Training[Any, Any]:
    """The training of the task of a run whose data is prepared."""
    training: Training[Any, Any] = tasks.part_of_run(run, "training").TRAINING
    return training
