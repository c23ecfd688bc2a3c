"""Series of frames as the input of a classifier: one label per series, the store, and the reader.

A long series is divided into segments of equal length, as a document into sentences.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import Corpus, Recipe
from regard.data.batches import DocumentBatch, Index
from regard.data.frame_store import FrameStore, Normalization, open_frames, write_frames
from regard.data.series import FrameValues, Series, read_series, require_width, take_series
from regard.errors import SettingsError
from regard.layers.hooks import AttentionTrace
from regard.models.base import ClassifierModel
from regard.run import Run
from regard.tasks import single_file
from regard.tasks.classify.inputs import (
    Classification,
    LabeledExample,
    LabeledExamples,
    PreparedExamples,
    Reader,
    keep_rare_labels,
)
from regard.tasks.classify.plan import make_series_plan
from regard.tasks.dataset import (
    HELD_OUT,
    Log,
    Parts,
    hold_out,
    new_store,
    open_store_folder,
    read_train,
    store_parts,
)
from regard.tasks.timelines import timeline
from regard.tasks.training import Json, Tables, Workload
from regard.training.plan import PlannedSetting

SEGMENT = 64
"""Largest number of frames of a segment: the networks attend to frames in a segment, then to segments."""
KEPT_NUMBERS = 200_000
"""Maximum number of numbers in the held-out frames that stay in a finished run."""


class LabeledSeries(NamedTuple):
    """A series of frames with its label."""

    labels: tuple[str, ...]
    content: Series

    @property
    def texts(self) -> tuple[str, ...]:
        return ()


class SeriesFacts(NamedTuple):
    """Statistics of the training series, from which the plan chooses settings."""

    series: int
    frames: float
    """Mean number of frames per series."""
    labels: int
    rarest: float
    """Share of the series that have the rarest label."""


# ---------------------------------------------------------------------------------------------------------------------
# Files


def read_labeled(corpus: Corpus, recipe: Recipe) -> list[LabeledSeries]:
    found = read_series(single_file(corpus, "frames and labels"), recipe.pictures, labeled="series")
    return [LabeledSeries(one.labels, one) for one in found]


def read_scored(corpus: Corpus, images: str, run: Run) -> list[LabeledSeries]:
    """The labeled series of a file, on which `run` is scored."""
    if images:
        raise SettingsError(f"--images {images}: this run reads frames, not pictures; leave out --images")
    found = read_labeled(corpus, run.recipe)
    require_width((one.content for one in found), run.sizes["frame_width"], corpus.source, "the run")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Use


@dataclass(frozen=True, kw_only=True)
class ClassifiedSeries(Classification):
    """A series with its labels and, if an explanation was requested, the weight of each frame."""

    name: str
    """The name of the series; empty if it has none."""
    attention: tuple[float, ...] | None = None
    """The attention weight of each frame; they sum to 1."""
    normalization: Normalization | None = field(default=None, repr=False, compare=False)
    """How the model normalizes the frames, if an explanation was requested."""

    def as_dict(self) -> Json:
        made = {"name": self.name, **super().as_dict()}
        return made if self.attention is None else made | {"attention": list(self.attention)}


class SeriesReader(Reader):
    """Reads series: arrays [T, F] or nested lists of numbers, or `Series`."""

    unit = "series"
    field = "frames"

    def __init__(self, normalization: Normalization):
        self.normalization = normalization

    def encode(self, contents: Sequence[Any]) -> list[FrameValues]:
        found = [take_series(one, place) for place, one in enumerate(contents)]
        require_width(found, len(self.normalization.mean_F), "frames", "the run")
        return [one.frames for one in found]

    def length(self, encoded: FrameValues) -> int:
        return len(encoded)

    def batch(self, encoded: Sequence[FrameValues]) -> DocumentBatch:
        return make_series_batch(encoded, self.normalization, torch.zeros(len(encoded), 0))

    def weigh(self, model: ClassifierModel, tape: AttentionTrace, batch: DocumentBatch) -> list[list[float]]:
        shares_BUS = model.shading(tape, batch).float().cpu()
        return [
            shares_US[mask_US].tolist() for shares_US, mask_US in zip(shares_BUS, batch.mask_BUS.cpu(), strict=True)
        ]

    def classification(self, content: Any, encoded: Any, weights: Any, **common: Any) -> ClassifiedSeries:
        name = content.name if isinstance(content, Series) else ""
        if weights is None:
            return ClassifiedSeries(name=name, **common)
        return ClassifiedSeries(name=name, attention=tuple(weights), normalization=self.normalization, **common)


def make_series_batch(
    series: Sequence[FrameValues], normalization: Normalization, target_BL: Tensor, index: Index | None = None
) -> DocumentBatch:
    """Make a batch of series; each is divided into segments of at most `SEGMENT` frames of about equal length."""
    bounds = [segment_bounds(len(frames)) for frames in series]
    lengths_BU = np.zeros((len(series), max(map(len, bounds)) - 1), np.int64)
    for row, own in enumerate(bounds):
        lengths_BU[row, : len(own) - 1] = np.diff(own)
    mask_BUS = np.arange(lengths_BU.max()) < lengths_BU[:, :, None]
    frames_BUSF = np.zeros((*mask_BUS.shape, series[0].shape[1]), np.float32)
    frames_BUSF[mask_BUS] = normalization.apply(np.concatenate(series))
    index_B = torch.arange(len(series)) if index is None else torch.tensor(index, dtype=torch.int64)
    return DocumentBatch(torch.from_numpy(frames_BUSF), torch.from_numpy(mask_BUS), target_BL, index_B)


def segment_bounds(frames: int) -> NDArray[np.int64]:
    count = math.ceil(frames / SEGMENT)
    return np.arange(count + 1) * frames // count


def open_reader(run: Run) -> SeriesReader:
    return SeriesReader(run.normalization)


# ---------------------------------------------------------------------------------------------------------------------
# Training


class TrainingSeries(LabeledExamples[LabeledSeries]):
    """The labeled series for training, validation and test. Equal series are never in two parts."""

    def __init__(self, recipe: Recipe, parts: Parts[LabeledSeries]):
        super().__init__(recipe, parts)
        first = next(parts.train()).content
        self.width, where = first.frames.shape[1], recipe.data.train[0].source
        for examples in (parts.train(), *parts.held_out.values()):
            require_width((one.content for one in examples), self.width, where, f"{where}, the first file,")

    def plan(self, given: Tables) -> list[PlannedSetting]:
        lengths = [len(one.content.frames) for one in self.parts.train()]
        counts = Counter(label for example in self.parts.train() for label in example.labels)
        rarest = min(counts.values()) / len(self)
        return make_series_plan(SeriesFacts(len(self), sum(lengths) / len(self), len(self.labels), rarest), given)

    def sizes(self, recipe: Recipe) -> dict[str, int]:
        return {"frame_width": self.width}

    def workload(self, recipe: Recipe) -> Workload:
        segments = [np.diff(segment_bounds(len(one.content.frames))) for one in self.parts.train()]
        frames = float(sum(own.sum() for own in segments))
        pairs = float(sum((own**2).sum() for own in segments))
        amounts = {"document": len(self), "sentence": sum(map(len, segments)), "token": frames, "pair": pairs}
        return Workload(amounts, frames / len(self))

    def prepare(self, run: Run, log: Log, base: Run | None) -> None:
        if base and base.sizes["frame_width"] != self.width:
            sizes = f"the data has frames of {self.width} numbers, those of {base.folder} {base.sizes['frame_width']}"
            raise SettingsError(f"{sizes}; give the same kind of data, or train a new run")
        own = base.normalization if base else Normalization.of(one.content.frames for one in self.parts.train())
        run.write_normalization(own)
        run.write_sizes(frame_width=self.width, labels=len(run.labels))

    def write(self, run: Run, log: Log) -> None:
        log(f"storing {len(self):,} series")
        with new_store(run, {}) as folder:
            parts = store_parts((len(series), weight) for series, weight in self.parts.corpora)
            write_frames(folder / "train", [one.content for one in self.parts.train()], run.labels, self.width, parts)
            for part, held_out in self.parts.held_out.items():
                write_frames(folder / part, [one.content for one in held_out], run.labels, self.width)


def read_examples(recipe: Recipe) -> TrainingSeries:
    data = recipe.data

    def read(corpus: Corpus) -> list[LabeledSeries]:
        return read_labeled(corpus, recipe)

    def content(example: LabeledSeries) -> str:
        return example.content.content

    found = read_train(data, read, "a file of labeled series", "series")
    parts = hold_out(data, found, read, content, "series", recipe.train.seed, keep_rare_labels)
    return TrainingSeries(recipe, parts)


class SeriesStore:
    """The stored training series, with the interface of `regard.tasks.classify.inputs.Store`."""

    def __init__(self, frames: FrameStore):
        self.frames, self.weights = frames, frames.weights
        self.tokens = frames.lengths.astype(np.uint32)

    def __len__(self) -> int:
        return len(self.frames)

    def label_counts(self, labels: int) -> NDArray[np.int64]:
        return self.frames.label_counts()

    def close(self) -> None:
        self.frames.close()


@dataclass(frozen=True)
class PreparedSeries(PreparedExamples[LabeledSeries]):
    """The series of a prepared run."""

    def batch(self, index: Index, seed: Sequence[int] = (), strength: float = 0.0) -> DocumentBatch:
        store: FrameStore = self.train.frames
        parts = [store.part(place, 0, int(store.lengths[place])) for place in index.tolist()]
        target_BL = torch.zeros(len(parts), len(self.labels))
        for row, (_, numbers) in enumerate(parts):
            target_BL[row, numbers.tolist()] = 1.0
        return make_series_batch([frames for frames, _ in parts], self.reader.normalization, target_BL, index)

    def card(self) -> Json:
        return {"series": self.counts(), "frame_width": len(self.reader.normalization.mean_F)}

    def records(self, examples: Sequence[LabeledSeries]) -> list[Json]:
        kept, room = [], KEPT_NUMBERS
        for one in examples:
            room -= one.content.frames.size
            if room >= 0:
                kept.append(
                    {"series": one.content.frames.tolist(), "labels": list(one.labels), "name": one.content.name}
                )
        return kept


def open_examples(run: Run, log: Log) -> PreparedSeries:
    folder = open_store_folder(run, lambda: read_examples(run.recipe).write(run, log))
    stores = (open_frames(folder / part, mapped=False) for part in HELD_OUT)
    valid, test = ([LabeledSeries(store[n].labels, store[n]) for n in range(len(store))] for store in stores)
    return PreparedSeries(open_reader(run), SeriesStore(open_frames(folder / "train")), valid, test, run.labels)


def from_records(records: Sequence[Json]) -> list[LabeledSeries]:
    return [
        LabeledSeries(
            tuple(one["labels"]), Series(np.array(one["series"], np.float32), tuple(one["labels"]), one["name"])
        )
        for one in records
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Report


def report_sections(
    results: Sequence[ClassifiedSeries], samples: Sequence[tuple[LabeledExample, ClassifiedSeries]]
) -> Json:
    lines = [
        attention_timeline(example.content, example.labels, result, result.normalization)
        for example, result in samples
        if result.normalization is not None
    ]
    labels = list(samples[0][1].probabilities) if samples else []
    return {"timelines": {"labels": labels, "series": lines}}


def attention_timeline(
    series: Series, correct: Sequence[str], found: ClassifiedSeries, normalization: Normalization
) -> Json:
    """The data of a time line: the correct and the predicted label of the series, and the attention to each frame.

    The largest attention weight is drawn as 1.
    """
    count = len(series.frames)
    weights = np.array(found.attention or [0.0] * count)
    shares = weights / max(float(weights.max()), 1e-12)
    right = [*correct][:1] * count
    name = f"{series.name}, {found.probability:.1%}" if series.name else f"{found.probability:.1%}"
    return timeline(series._replace(name=name), right, [found.label] * count, shares, normalization, "attention")
