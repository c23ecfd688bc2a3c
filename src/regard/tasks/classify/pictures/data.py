"""Pictures as the input of a classifier: labeled pictures from lists and folders, the store, and the reader.

The labels are a column of a list, or the names of the subfolders of a folder (or of a ZIP file) with the pictures.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.analysis.attribution_methods import roll_out_pooling
from regard.config import Corpus, PictureSettings, Recipe
from regard.data.batches import DocumentBatch, Index
from regard.data.pictures import SUFFIXES, PictureSource, Pixels, to_data_url
from regard.data.store import DocumentStore, open_documents, write_documents
from regard.errors import CorpusError, SettingsError
from regard.layers.hooks import AttentionTrace
from regard.models.base import ClassifierModel
from regard.run import Run
from regard.tasks.classify.inputs import (
    LABEL_COLUMNS,
    Classification,
    LabeledExample,
    LabeledExamples,
    PreparedExamples,
    Reader,
    is_collection,
    keep_rare_labels,
    number_labels,
    read_labels,
)
from regard.tasks.classify.plan import make_picture_plan
from regard.tasks.dataset import HELD_OUT, Log, open_store_folder, read_held_out, store_parts
from regard.tasks.pictures import (
    COLUMNS,
    Gallery,
    HeldOutPictures,
    PictureExamples,
    fit_pictures,
    gallery_card,
    kept_pictures,
    new_picture_store,
    open_gallery,
    picture_input,
    picture_lengths,
    picture_mask,
    read_list,
    read_pictures,
    training_input,
)
from regard.tasks.pictures import read_examples as read_parts
from regard.tasks.training import Json, Tables, Workload
from regard.training.plan import PlannedSetting

HIDDEN = (".", "__MACOSX")
"""Folders and files with names that begin like this are not read."""
FORM = (LABEL_COLUMNS[0], COLUMNS[0])
"""The columns of a TSV file without a header."""


class NamedPicture(NamedTuple):
    """A picture that is already read, with the name to show."""

    name: str
    pixels: Pixels


class LabeledPicture(NamedTuple):
    """A picture in a list or folder. `picture`: its name, as `PictureSource.find` returns it."""

    labels: tuple[str, ...]
    picture: str

    @property
    def content(self) -> str:
        return self.picture

    @property
    def texts(self) -> tuple[str, ...]:
        return ()


class StoredPicture(NamedTuple):
    """A held-out picture with its pixels."""

    labels: tuple[str, ...]
    content: NamedPicture

    @property
    def texts(self) -> tuple[str, ...]:
        return ()


# ---------------------------------------------------------------------------------------------------------------------
# Files


def pictures_of(recipe: Recipe) -> PictureSettings:
    """The settings of pictures. Without `pictures.images`, the pictures are in the folders that [data] names."""
    pictures, data = recipe.pictures, recipe.data
    if pictures.images:
        return pictures
    sources = [corpus.source for part in (data.train, data.valid, data.test) for corpus in part]
    for source in sources:
        if not is_collection(source):
            raise SettingsError(f"{source}: name the folder or ZIP file of its pictures (--images DIR|ZIP)")
    if len(sources) > 1 and not all(map(os.path.isdir, sources)):
        raise SettingsError(f"{sources[0]}: give one ZIP file for all parts, or a folder for each part")
    common = sources[0] if len(sources) == 1 else os.path.commonpath(map(os.path.abspath, sources))
    return replace(pictures, images=common)


def read_labeled(corpus: Corpus, source: PictureSource) -> list[LabeledPicture]:
    """Read the labeled pictures of a list, of a folder in `source`, or of the ZIP file `source`.

    A picture that is listed twice with the same labels is one example; with different labels, it is an error.
    """
    found: dict[str, tuple[str, ...]] = {}
    rows = _read_folder(corpus, source) if is_collection(corpus.source) else _read_rows(corpus, source)
    for where, picture, labels in rows:
        if found.setdefault(picture, labels) != labels:
            others = " and ".join(found[picture])
            raise CorpusError(where, f'the picture "{picture}" has also the label "{others}"; keep one of the rows')
    if not found:
        raise CorpusError(corpus.source, f"there is no picture here (files with the endings {', '.join(SUFFIXES)})")
    return [LabeledPicture(labels, picture) for picture, labels in found.items()]


def _read_rows(corpus: Corpus, source: PictureSource) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield place, picture and labels of each row of a list."""
    for row in read_list(corpus, source, FORM):
        column = next((name for name in LABEL_COLUMNS if name in row.cells), None)
        if column is None:
            raise CorpusError(row.where, 'no column "label"; a list has the columns "label" and "picture"')
        yield row.where, row.picture, read_labels(row.cells[column], row.where)


def _read_folder(corpus: Corpus, source: PictureSource) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the folder, the name and the label of each picture: the name of the subfolder that it is in."""
    inside = os.path.relpath(corpus.source, source.path)
    if inside.startswith(os.pardir):
        raise CorpusError(corpus.source, f"this folder is not inside {source.path}; leave out --images")
    names = [PurePosixPath(name) for name in source.names() if name.lower().endswith(SUFFIXES)]
    names = [name for name in names if not any(part.startswith(HIDDEN) for part in name.parts)]
    before = PurePosixPath()
    if os.path.isdir(corpus.source):
        before = PurePosixPath(*() if inside == os.curdir else Path(inside).parts)
        names = [name for name in names if name.is_relative_to(before)]
    elif len({name.parts[0] for name in names}) == 1 and all(len(name.parts) > 2 for name in names):
        before = PurePosixPath(names[0].parts[0])  # of a packed folder: its own name is no label
    for name in names:
        parts = name.relative_to(before).parts
        if len(parts) == 1:
            advice = "put each picture into a subfolder with the name of its label, or give a list and --images"
            raise CorpusError(corpus.source, f'the picture "{name}" is in no subfolder; {advice}')
        yield corpus.source, str(name), (parts[0],)


def read_scored(corpus: Corpus, images: str, run: Run) -> list[StoredPicture]:
    """The labeled pictures of a list or folder, on which `run` is scored. Without `images`: those of its training."""
    collection = is_collection(corpus.source)
    images = images or (corpus.source if collection else run.recipe.pictures.images)
    with PictureSource.open(images) as source:
        return [
            StoredPicture(one.labels, NamedPicture(one.picture, source.read(one.picture, images, run.recipe.pictures)))
            for one in read_labeled(corpus, source)
        ]


# ---------------------------------------------------------------------------------------------------------------------
# Use


class PatchWeights(NamedTuple):
    """The attention to the patches of a picture, as rows of weights that sum to 1."""

    attention: list[list[float]]
    """The weights of the pooling: how much each state of the last layer counts."""
    rollout: list[list[float]] | None
    """Attention rollout through all layers (Abnar and Zuidema 2020); None if the encoder has no self-attention."""


@dataclass(frozen=True, kw_only=True)
class ClassifiedPicture(Classification):
    """A picture with its labels and, if an explanation was requested, the weights of its patches."""

    picture: str
    """The name of its file; empty if it has none."""
    patches: PatchWeights | None = None
    pixels: Pixels | None = field(default=None, repr=False, compare=False)
    """The picture as the model reads it, if an explanation was requested."""

    def as_dict(self) -> Json:
        made = {"picture": self.picture, **super().as_dict()}
        return made if self.patches is None else made | {"patches": self.patches._asdict()}

    def for_page(self) -> Json:
        return self.as_dict() | ({} if self.pixels is None else {"pixels": to_data_url(self.pixels)})


class PictureReader(Reader):
    """Reads pictures: paths of files, contents of files (bytes), arrays of pixels, or `NamedPicture`."""

    unit = field = "pictures"

    def __init__(self, settings: PictureSettings):
        self.settings = settings

    def encode(self, contents: Sequence[Any]) -> list[Pixels]:
        if any(isinstance(content, NamedPicture) for content in contents):
            return [self._encode_one(content) for content in contents]
        return list(read_pictures(contents, self.settings)) if contents else []

    def _encode_one(self, content: Any) -> Pixels:
        if isinstance(content, NamedPicture):
            found: Pixels = fit_pictures(content.pixels[None], self.settings)[0]
            return found
        return self.encode([content])[0]

    def length(self, encoded: Pixels) -> int:
        return picture_mask(self.settings, 1).numel()

    def batch(self, encoded: Sequence[Pixels]) -> DocumentBatch:
        values = picture_input(np.stack(encoded), self.settings)
        return make_picture_batch(values, self.settings, torch.zeros(len(encoded), 0))

    def weigh(self, model: ClassifierModel, tape: AttentionTrace, batch: DocumentBatch) -> list[PatchWeights]:
        pooled_BS = model.shading(tape, batch)[:, 0].float().cpu()
        rolled_BS = roll_out_pooling(tape, pooled_BS)
        attention = self._rows(pooled_BS)
        return [*map(PatchWeights, attention, [None] * len(attention) if rolled_BS is None else self._rows(rolled_BS))]

    def _rows(self, weights_BS: torch.Tensor) -> list[list[list[float]]]:
        height, width = (side // self.settings.patch_size for side in self.settings.size)
        return weights_BS.unflatten(1, (height, width)).tolist()

    def classification(self, content: Any, encoded: Pixels, weights: Any, **common: Any) -> ClassifiedPicture:
        name = content.name if isinstance(content, NamedPicture) else ""
        if isinstance(content, str | Path):
            name = str(content)
        pixels = None if weights is None else encoded
        return ClassifiedPicture(picture=name, patches=weights, pixels=pixels, **common)


def make_picture_batch(
    values: torch.Tensor, settings: PictureSettings, target_BL: torch.Tensor, index: Index | None = None
) -> DocumentBatch:
    """A batch of pictures, given as values [B, C, Y, X]; a picture is a document of one segment."""
    index_B = torch.arange(len(values)) if index is None else torch.tensor(index, dtype=torch.int64)
    return DocumentBatch(values[:, None], picture_mask(settings, len(values))[:, None], target_BL, index_B)


def open_reader(run: Run) -> PictureReader:
    return PictureReader(run.recipe.pictures)


# ---------------------------------------------------------------------------------------------------------------------
# Training


class TrainingPictures(LabeledExamples[LabeledPicture]):
    """The labeled pictures for training, validation and test. A picture is never in two parts."""

    def __init__(self, recipe: Recipe, found: PictureExamples[LabeledPicture]):
        super().__init__(recipe, found.parts)
        self.found = found

    def plan(self, given: Tables) -> list[PlannedSetting]:
        images = "" if self.recipe.pictures.images else self.found.pictures.images
        counts = Counter(label for example in self.parts.train() for label in example.labels)
        rarest = min(counts.values()) / len(self)
        several = any(len(example.labels) != 1 for example in self.parts.train())
        facts, labels = self.found.facts, len(self.labels)
        return make_picture_plan(facts, len(self), given, labels, rarest, several=several, images=images)

    def sizes(self, recipe: Recipe) -> dict[str, int]:
        return recipe.pictures.sizes

    def workload(self, recipe: Recipe) -> Workload:
        patches = picture_mask(recipe.pictures, 1).numel()
        amounts = {"document": 1, "sentence": 1, "token": patches, "pair": patches**2}
        return Workload({unit: len(self) * count for unit, count in amounts.items()}, patches)

    def prepare(self, run: Run, log: Log, base: Run | None) -> None:
        run.write_sizes(**run.recipe.pictures.sizes, labels=len(run.labels))

    def write(self, run: Run, log: Log) -> None:
        parts = store_parts((len(found), weight) for found, weight in self.parts.corpora)
        numbers = number_labels(run, self)
        with new_picture_store(run, self.found, log) as (folder, places):
            rows = (([[places[one.picture]]], own) for one, own in zip(self.parts.train(), numbers, strict=True))
            write_documents(folder / "train", rows, parts, len(places))


def read_examples(recipe: Recipe) -> TrainingPictures:
    images = pictures_of(recipe)
    found: PictureExamples[LabeledPicture] = read_parts(
        replace(recipe, pictures=images), read_labeled, "a list or a folder of pictures", "pictures", keep_rare_labels
    )
    return TrainingPictures(recipe, found)


class TrainingStore:
    """The training pictures of a prepared run: for each, its place in the gallery, and its labels."""

    def __init__(self, places: DocumentStore, gallery: Gallery, settings: PictureSettings):
        self.places, self.gallery, self.weights = places, gallery, places.weights
        self.tokens = picture_lengths(settings, places.tokens)[0]

    def __len__(self) -> int:
        return len(self.places)

    def label_counts(self, labels: int) -> Any:
        return self.places.label_counts(labels)

    def close(self) -> None:
        self.places.close()
        self.gallery.close()


@dataclass(frozen=True)
class PreparedPictures(PreparedExamples[StoredPicture]):
    """The pictures of a prepared run."""

    recipe: Recipe

    def batch(self, index: Index, seed: Sequence[int] = (), strength: float = 0.0) -> DocumentBatch:
        """Pictures with these indices; `strength` is a factor on the augmentation in [pictures]."""
        rows = [self.train.places[int(place)] for place in index]
        pixels = self.train.gallery.pixels(np.array([int(ids[0][0]) for ids, _ in rows], np.int64))
        target_BL = torch.zeros(len(index), len(self.labels))
        for row, (_, numbers) in enumerate(rows):
            target_BL[row, numbers] = 1.0
        settings = self.recipe.pictures
        values = (
            training_input(pixels, self.recipe, seed[-1], strength) if strength else picture_input(pixels, settings)
        )
        return make_picture_batch(values, settings, target_BL, index)

    def card(self) -> Json:
        gallery = gallery_card(self.train.gallery)
        return {"pictures": self.counts() | gallery["pictures"]}

    def records(self, examples: Sequence[StoredPicture]) -> list[Json]:
        named = [LabeledPicture(one.labels, one.content.name) for one in examples]
        return HeldOutPictures(named, self.train.gallery).records()


def open_examples(run: Run, log: Log) -> PreparedPictures:
    folder = open_store_folder(run, lambda: read_examples(run.recipe).write(run, log))
    settings = run.recipe.pictures
    gallery = open_gallery(folder, settings)
    valid, test = (_stored(read_held_out(folder, part, "pictures"), gallery) for part in HELD_OUT)
    train = TrainingStore(open_documents(folder / "train"), gallery, settings)
    return PreparedPictures(open_reader(run), train, valid, test, run.labels, run.recipe)


def from_records(records: Sequence[Json]) -> list[StoredPicture]:
    return _stored(records, kept_pictures(records))


def _stored(records: Sequence[Json], gallery: Gallery) -> list[StoredPicture]:
    names = [str(record["picture"]) for record in records]
    pixels = gallery.pixels(names) if names else ()
    return [
        StoredPicture(tuple(record["labels"]), NamedPicture(name, one))
        for record, name, one in zip(records, names, pixels, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Report


def report_sections(
    results: Sequence[ClassifiedPicture], samples: Sequence[tuple[LabeledExample, ClassifiedPicture]]
) -> Json:
    return {"pictures": [result.for_page() | {"right": list(example.labels)} for example, result in samples]}
