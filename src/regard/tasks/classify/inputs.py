"""What a classifier reads: the contract of the kinds of input, e.g. documents and pictures.

A kind of input is a module of this folder. `kind_of` finds it by the recipe, and nothing else asks for the kind. It has

    read_examples(recipe)               labeled examples from files, divided into parts: `LabeledExamples`
    open_examples(run, log)             the same examples, as `LabeledExamples.write` stored them: `PreparedExamples`
    from_records(records)               held-out examples, as a finished run stores them
    read_scored(corpus, images, run)    labeled examples on which a trained run is scored
    open_reader(run)                    how a trained model reads its input: `Reader`
    report_sections(results, samples)   the sections of the report that show examples

Labels, loss, calibration and scores are the same for every kind: they see only the batches of a reader, which all have
the same form (`regard.models.base.Documents`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.config import Recipe
from regard.data.batches import DocumentBatch, Index
from regard.data.series import holds_series
from regard.data.store import Ids, StorePart
from regard.errors import CorpusError, ModelError, nearest
from regard.layers.hooks import AttentionTrace
from regard.models.base import ClassifierModel
from regard.run import Run
from regard.tasks.dataset import Log, Parts
from regard.tasks.training import Json, Tables, Workload
from regard.text.words import ShadedWord
from regard.training.plan import PlannedSetting

LABEL_COLUMNS = ("label", "labels", "category")
"""Possible names of the column with the label, in files of labeled examples of every kind."""
KINDS = {"picture_channels": "pictures.data", "frame_width": "frames.data"}
"""The module of a kind of input, by the size that only runs of this kind store."""


def kind_of(recipe: Recipe) -> Any:
    """The module of the kind of input that a recipe for a new run is for."""
    sources = [corpus.source for corpus in recipe.data.train]
    if any(map(holds_series, sources)) and not recipe.pictures.images:
        return _module("frames.data")
    is_picture = recipe.pictures.images or any(map(is_collection, sources))
    return _module("pictures.data" if is_picture else "documents")


def kind_of_run(run: Run) -> Any:
    """The module of the kind of input of a run."""
    return _module(next((module for size, module in KINDS.items() if size in run.sizes), "documents"))


def kind_of_records(records: Sequence[Json]) -> Any:
    """The module of the kind of input that held-out examples of a run have."""
    if any("series" in record for record in records):
        return _module("frames.data")
    return _module("pictures.data" if any("picture" in record for record in records) else "documents")


def _module(name: str) -> Any:
    return import_module(f"{__package__}.{name}")


def is_collection(path: str | Path) -> bool:
    """Whether a path is a folder or a ZIP file: then labels are the names of the folders in it."""
    return Path(path).suffix.lower() == ".zip" or Path(path).is_dir()


# ---------------------------------------------------------------------------------------------------------------------
# Use


@dataclass(frozen=True, kw_only=True)
class Classification:
    """The labels that a classifier assigned to one input, and the probabilities of all labels.

    A kind of input adds the input itself and, if an explanation was requested, the attention weights of its parts.
    """

    label: str
    """The most likely label; empty if labels are decided independently and none reaches the threshold."""
    probability: float
    """Calibrated probability of the most likely label."""
    probabilities: dict[str, float]
    """Probabilities of all labels, in the order of labels.json."""
    labels: tuple[str, ...]
    """The assigned labels, most likely first; exactly one label if classify.multi_label is false."""

    @property
    def fits_report(self) -> bool:
        """Whether the input is small enough to be an example in the report."""
        return True

    def as_dict(self) -> Json:
        """The fields as JSON data. Without explanation if there is none."""
        return {
            "label": self.label,
            "probability": self.probability,
            "probabilities": self.probabilities,
            "labels": list(self.labels),
        }

    def for_page(self) -> Json:
        """Like `as_dict`; with an explanation, also what a page needs to show the input."""
        return self.as_dict()


class Reader(ABC):
    """How a trained model reads one kind of input: from contents (e.g. texts) to batches, and back to explanations."""

    unit: ClassVar[str]
    """What messages call the inputs, e.g. "documents"."""
    field: ClassVar[str]
    """The field of a request to the server that has the inputs."""

    @abstractmethod
    def encode(self, contents: Sequence[Any]) -> list[Any]:
        """Read contents, and return for each what `batch` needs, e.g. its token ids."""

    @abstractmethod
    def length(self, encoded: Any) -> int:
        """Number of vectors that the model reads for an encoded input, e.g. of its tokens."""

    @abstractmethod
    def batch(self, encoded: Sequence[Any]) -> DocumentBatch:
        """Make a batch of encoded inputs, without labels."""

    @abstractmethod
    def weigh(self, model: ClassifierModel, tape: AttentionTrace, batch: DocumentBatch) -> list[Any]:
        """For each input of a batch, what `classification` needs to explain it; `tape`: the recorded attention."""

    @abstractmethod
    def classification(self, content: Any, encoded: Any, weights: Any, **common: Any) -> Classification:
        """The result for one input. `weights`: its part of the result of `weigh`; None: without an explanation.

        `common`: the fields of `Classification`.
        """

    def attributed(self, content: Any, shares: Sequence[float]) -> list[ShadedWord]:
        """The words of a text with their contributions to a label; `shares`: those of all tokens that are read."""
        raise ModelError(f"contributions to a label are computed for words, not for {self.unit}")


# ---------------------------------------------------------------------------------------------------------------------
# Training


class LabeledExample(Protocol):
    """An input with its labels."""

    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def content(self) -> Any:
        """What `Reader.encode` takes."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that fine-tuning compares with the vocabulary; none if the input is not a text."""


ExampleOf = TypeVar("ExampleOf", bound=LabeledExample)


class LabeledExamples(ABC, Generic[ExampleOf]):
    """The labeled examples for training, validation and test, read from files.

    If there are no files for validation or test, examples of the training files are held out for it.
    """

    def __init__(self, recipe: Recipe, parts: Parts[ExampleOf]):
        self.recipe, self.parts = recipe, parts
        unit, where = parts.unit, recipe.data.train[0].source
        one = unit.removesuffix("s")
        labels = sorted({label for example in parts.train() for label in example.labels})
        if len(labels) < 2:
            only = f'every {one} is labeled "{labels[0]}"' if labels else f"no {one} has a label"
            raise CorpusError(where, f"{only}; training needs at least two labels: add {unit} with another one")
        for part, examples in parts.held_out.items():
            unknown = sorted({label for example in examples for label in example.labels} - set(labels))
            if unknown:
                guess = nearest(unknown[0], labels)
                problem = (
                    f'the {part} data has the label "{unknown[0]}", but no training {unit.removesuffix("s")} has it'
                )
                raise CorpusError(where, f"{problem}; add such {unit}, or correct the label{guess}")
        self.labels = tuple(labels)

    def __len__(self) -> int:
        return len(self.parts)

    def describe(self) -> str:
        return f"{self.parts.describe()}; {len(self.labels)} labels"

    @abstractmethod
    def plan(self, given: Tables) -> list[PlannedSetting]:
        """Choose the settings that the user has not `given`."""

    @abstractmethod
    def sizes(self, recipe: Recipe) -> dict[str, int]:
        """The sizes of the input of the network (see `regard.models.build`), before `prepare`."""

    @abstractmethod
    def workload(self, recipe: Recipe) -> Workload:
        """Estimate the amount of computation in one epoch."""

    @abstractmethod
    def prepare(self, run: Run, log: Log, base: Run | None) -> None:
        """Write into a run what its reader needs, and the sizes of the network. `base`: the run that is fine-tuned."""

    @abstractmethod
    def write(self, run: Run, log: Log) -> None:
        """Encode the training examples, and write them and the held-out examples into the folder store/ of a run."""


def read_labels(found: Any, where: str) -> tuple[str, ...]:
    """The labels in a cell of a table or in a JSON value: text, a number, or a list of these."""
    labels: dict[str, None] = {}  # without repetitions
    for value in found if isinstance(found, list) else [found]:
        label = json.dumps(value) if isinstance(value, int | float) else value  # bool is a subclass of int
        if not isinstance(label, str) or not label.strip():
            problem = f"{json.dumps(value)} is not a label; give a string that is not empty, or a number"
            raise CorpusError(where, problem)
        labels[label.strip()] = None
    return tuple(labels)


def keep_rare_labels(examples: Sequence[LabeledExample], parts: bytes) -> bytes:
    """Move held-out examples to the training part if one of their labels is in no training example.

    `parts` and the returned bytes have the part of each example: 0 training, 1 validation, 2 test.
    """
    known = {label for example, part in zip(examples, parts, strict=True) if not part for label in example.labels}
    return bytes(part if known.issuperset(one.labels) else 0 for one, part in zip(examples, parts, strict=True))


def number_labels(run: Run, examples: LabeledExamples[Any]) -> list[list[int]]:
    """The indices of the labels of each training example among the labels of the run."""
    number = {label: place for place, label in enumerate(run.labels)}
    return [[number[label] for label in one.labels] for one in examples.parts.train()]


@dataclass(frozen=True)
class PreparedExamples(ABC, Generic[ExampleOf]):
    """The examples of a prepared run: the training examples encoded in a store, the others as they were read."""

    reader: Any
    """A `Reader`."""
    train: Any
    """A `Store`."""
    valid: list[ExampleOf]
    test: list[ExampleOf]
    labels: tuple[str, ...]

    @abstractmethod
    def batch(self, index: Index, seed: Sequence[int] = (), strength: float = 0.0) -> DocumentBatch:
        """Make a batch of the training examples with these indices.

        If `strength` is above 0, they are changed at random, as the settings say; `seed` determines the changes.
        """

    @abstractmethod
    def card(self) -> Json:
        """Entries of card.json: what the input is, and the number of examples of each part."""

    @abstractmethod
    def records(self, examples: Sequence[ExampleOf]) -> list[Json]:
        """Held-out examples as JSON objects, from which `from_records` makes them again."""

    def counts(self) -> dict[str, int]:
        return {"train": len(self.train), "valid": len(self.valid), "test": len(self.test)}


class Store(Protocol):
    """Encoded training examples on the disk."""

    weights: Sequence[StorePart]

    @property
    def tokens(self) -> Ids:
        """The length of each example: the number of vectors that the model reads."""

    def __len__(self) -> int: ...
    def label_counts(self, labels: int) -> NDArray[np.int64]:
        """For each label, the number of examples that have it. `labels`: how many labels there are."""

    def close(self) -> None: ...
