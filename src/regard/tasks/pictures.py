"""Training on pictures, for any task: lists of pictures to held-out parts, a picture store, and inputs of a network.

A list has a column with the name of a picture in a folder or ZIP file (`pictures.images`); a task reads the other
columns. A picture is read and stored once, also if several examples refer to it, and it is never in two parts.

    read_examples                      the examples of all files, in parts (`PictureExamples`)
    plan_pictures                      size, patches, normalization and augmentation, chosen from the pictures
    new_picture_store, open_gallery    the pictures in the folder store/ of a run
    picture_input, training_input      the input of an encoder, pixels [B, C, Y, X]; with random changes
    picture_mask                       the mask of its patches
    picture_lengths                    lengths of examples, for the stream of batches
    HeldOutPictures, kept_pictures     held-out examples, and their pictures in a finished run
    read_pictures                      pictures of a user, for a trained run
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import Corpus, PictureSettings, Recipe
from regard.data.augmentation import augment, to_input
from regard.data.builtin import caption_rows, corpus_of
from regard.data.pictures import (
    PictureSource,
    PictureStore,
    open_pictures,
    read_array,
    read_picture,
    read_picture_file,
    read_size,
    to_data_url,
    write_pictures,
)
from regard.data.records import read_rows
from regard.errors import CorpusError, RunError, SettingsError
from regard.layers.dropout import batch_seed
from regard.run import Run
from regard.tasks import single_file
from regard.tasks.dataset import HELD_OUT, Log, Parts, hold_out, new_store, read_train
from regard.training.plan import PlannedSetting, Tables

Json = dict[str, Any]

COLUMNS = ("picture", "image", "file_name", "filename", "file", "path")
"""Possible names of the column with the name of the picture."""
MEASURED = 64
"""Number of pictures from which the plan computes sizes, mean and deviation."""
PATCHES = ((16, 2), (40, 4), (96, 8))
"""The patch size of pictures whose longer side is at most so many pixels, so that there are enough patches."""
SMALLEST = 4
"""Smallest height and width of the pictures that a network reads."""
PICTURES, NAMES = "pictures.npy", "pictures.json"
"""Files of the store: the pixels of all pictures, and their names in the same order."""


class PictureExample(Protocol):
    """What this module needs of an example of a task: the name of its picture, as `PictureSource.find` returns it."""

    @property
    def picture(self) -> str: ...


Example = TypeVar("Example", bound=PictureExample)


# ---------------------------------------------------------------------------------------------------------------------
# Lists of pictures


class PictureRow(NamedTuple):
    """A row of a list: its place ("captions.tsv:3"), the picture, and all cells by the name of their column."""

    where: str
    picture: str
    cells: Mapping[str, Any]

    def text(self, column: str) -> str:
        """The text in a column; "" if it is missing or empty. A value that is not text is an error."""
        value = self.cells.get(column)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise CorpusError(self.where, f'the column "{column}" has {json.dumps(value)}, not text; correct it')
        return value.strip()


def read_list(corpus: Corpus, source: PictureSource, form: Sequence[str]) -> Iterator[PictureRow]:
    """Yield the rows of a list. Its pictures must be in `source`; they are not decoded yet.

    `form`: the columns of a TSV file without a header, e.g. ("picture", "caption"). The rows of the built-in drawings
    have a column for each language, and a row for each right caption.
    """
    path = single_file(corpus, "pictures and what belongs to them")
    if corpus_of(corpus.source):
        for drawing, captions in caption_rows(corpus.source):
            yield PictureRow(corpus.source, source.find(drawing, corpus.source), captions)
        return
    for number, cells in read_rows(path, COLUMNS, form):
        where = f"{path}:{number}"
        name = next((cells[column] for column in COLUMNS if cells.get(column)), None)
        if not isinstance(name, str):
            raise CorpusError(where, f'no name of a picture in the column "{COLUMNS[0]}"; add it, or remove the row')
        yield PictureRow(where, source.find(name.strip(), where), cells)


class PictureFacts(NamedTuple):
    """What the plan knows about the training pictures."""

    pictures: int
    """Number of different pictures."""
    height: int
    """Median height in pixels."""
    width: int
    mean: float
    """Mean of all pixels, from -1 (black) to 1 (white)."""
    deviation: float
    is_gray: bool = False
    """Whether no picture has colors."""


@dataclass(frozen=True)
class PictureExamples(Generic[Example]):
    """The examples of a task on pictures, in memory, and where their pictures are."""

    parts: Parts[Example]
    pictures: PictureSettings

    def __len__(self) -> int:
        return len(self.parts)

    def describe(self) -> str:
        names = [len({one.picture for one in self._part(part)}) for part in ("train", *HELD_OUT)]
        counted = "{:,}, {:,} and {:,}".format(*names)
        return self.parts.describe() + ("" if names[0] == len(self) else f"; of {counted} pictures")

    @cached_property
    def names(self) -> list[str]:
        """The names of all pictures, each once: those of the training examples first."""
        return list(dict.fromkeys(one.picture for part in ("train", *HELD_OUT) for one in self._part(part)))

    @cached_property
    def facts(self) -> PictureFacts:
        """Measure some of the training pictures, evenly spaced in the list."""
        names = list(dict.fromkeys(one.picture for one in self.parts.train()))
        chosen = names[:: -(-len(names) // MEASURED)]
        with PictureSource.open(self.pictures.images) as source:
            sizes = [source.size(name, self.pictures.images) for name in chosen]
            pixels = np.stack([source.read(name, self.pictures.images, self.pictures) for name in chosen])
        height, width = (int(size) for size in np.median(np.array(sizes), axis=0))
        scaled, is_gray = pixels / 127.5 - 1, bool((pixels == pixels[:, :1]).all())
        return PictureFacts(len(names), height, width, float(scaled.mean()), float(scaled.std()), is_gray)

    def _part(self, part: str) -> Iterable[Example]:
        return self.parts.train() if part == "train" else self.parts.held_out[part]


def read_examples(
    recipe: Recipe,
    read: Callable[[Corpus, PictureSource], list[Example]],
    what: str,
    unit: str,
    adjust: Callable[[list[Example], bytes], bytes] | None = None,
) -> PictureExamples[Example]:
    """Read the lists of a recipe, and hold out examples; those of one picture are always in the same part.

    `read` reads one list. `what`, `unit` and `adjust`: see `regard.tasks.dataset.read_train` and `hold_out`.
    """
    data, pictures = recipe.data, recipe.pictures
    if not pictures.images:
        raise SettingsError("pictures.images is empty: name the folder or ZIP file of the pictures (--images DIR|ZIP)")
    with PictureSource.open(pictures.images) as source:

        def read_one(corpus: Corpus) -> list[Example]:
            return read(corpus, source)

        found = read_train(data, read_one, what, unit)
        parts = hold_out(data, found, read_one, lambda one: one.picture, unit, recipe.train.seed, adjust)
    part_of = {one.picture: "training" for one in parts.train()}
    for part, examples in parts.held_out.items():
        for one in examples:
            if (other := part_of.setdefault(one.picture, part)) != part:
                where = getattr(data, part)[0].source if getattr(data, part) else data.train[0].source
                problem = f'the picture "{one.picture}" is in the {other} data, too'
                raise CorpusError(where, f"{problem}; remove it from one of them, so that the scores are honest")
    return PictureExamples(parts, pictures)


# ---------------------------------------------------------------------------------------------------------------------
# The plan


def plan_pictures(facts: PictureFacts, given: Tables) -> Iterator[PlannedSetting]:
    """Choose the size of the pictures, patches, normalization and augmentation. No choice mirrors or recolors.

    A size or a patch size that the user has `given` is respected by the other one.
    """
    own = given.get("pictures", {})
    shape = f"the pictures have about {facts.height} x {facts.width} pixels"
    height, width = own.get("size") or (facts.height, facts.width)
    longest = max(height, width)
    patch = own.get("patch_size") or next((patch for most, patch in PATCHES if longest <= most), 16)
    if "size" in own and "patch_size" not in own:
        while height % patch or width % patch:
            patch //= 2
    scale = min(1.0, 128 / longest)
    size = tuple(max(patch, SMALLEST, round(scale * side / patch) * patch) for side in (facts.height, facts.width))
    size = own.get("size") or size
    rows, columns = (side // patch for side in size)
    yield PlannedSetting("pictures.size", size, shape)
    yield PlannedSetting("pictures.patch_size", patch, f"{rows} x {columns} patches: attention can be shown on them")
    if patch & (patch - 1) or patch == 1:
        yield PlannedSetting("pictures.convolutions", 0, f"convolutions cannot end in patches of {patch} pixels")
    if facts.is_gray:
        yield PlannedSetting("pictures.channels", 1, "no picture has colors")
    same = "so that the inputs have a mean near 0 and a deviation near 1"
    yield PlannedSetting("pictures.mean", round(facts.mean, 3), same)
    yield PlannedSetting("pictures.deviation", round(max(facts.deviation, 0.05), 3), same)
    if facts.pictures < 50_000:
        few = f"{facts.pictures:,} pictures: each is seen differently every time"
        yield PlannedSetting("pictures.shift", 0.08, few)
        yield PlannedSetting("pictures.zoom", 0.1, few)


# ---------------------------------------------------------------------------------------------------------------------
# The store


class Gallery:
    """The stored pictures of a run, by name. Made by `open_gallery`."""

    def __init__(self, store: PictureStore, names: Sequence[str]):
        self.store, self.places = store, {name: place for place, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self.places)

    def pixels(self, pictures: Iterable[str] | NDArray[np.integer]) -> NDArray[np.uint8]:
        """The pictures with these names, or with these places in the store: [B, C, Y, X]."""
        if isinstance(pictures, np.ndarray):
            return np.asarray(self.store[pictures])
        return np.asarray(self.store[np.array([self.places[name] for name in pictures], np.int64)])

    def hash(self) -> str:
        """A hash of the names and of all pixels."""
        found = hashlib.sha256(json.dumps(list(self.places)).encode())
        for place in range(len(self.store)):
            found.update(self.store[place].tobytes())
        return found.hexdigest()

    def close(self) -> None:
        self.store.close()


@contextmanager
def new_picture_store(run: Run, examples: PictureExamples[Any], log: Log) -> Iterator[tuple[Path, dict[str, int]]]:
    """Like `regard.tasks.dataset.new_store`, with all pictures in it, each once.

    Yields the folder, and the place of each picture in the store by its name. The held-out examples must be
    NamedTuples. If a run is prepared again, other pictures than before are an error.
    """
    settings, names = run.recipe.pictures, examples.names
    log(f"reading {len(names):,} pictures")
    records = {part: (one._asdict() for one in found) for part, found in examples.parts.held_out.items()}
    with new_store(run, records) as folder:
        with PictureSource.open(settings.images) as source:
            pictures = (source.read(name, settings.images, settings) for name in names)
            write_pictures(folder / PICTURES, pictures, len(names), settings)
        (folder / NAMES).write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")
        gallery = open_gallery(folder, settings)
        if (known := run.card.get("pictures")) and known["sha256"] != gallery.hash():
            problem = f"the pictures have changed since {run.folder} was trained"
            raise RunError(f"{settings.images}: {problem}; take the old ones, or train a new run")
        _warn_of_equal_pictures(gallery, examples, log)
        places = gallery.places
        gallery.close()
        yield folder, places


def open_gallery(folder: Path, settings: PictureSettings) -> Gallery:
    """Open the pictures that `new_picture_store` wrote; `folder`: store/ of the run."""
    store = open_pictures(folder / PICTURES, settings)
    try:
        names = json.loads((folder / NAMES).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / NAMES}: cannot read the names of the pictures ({error}); remove {folder}") from None
    if len(names) != len(store):
        raise RunError(f"{folder}: {len(names)} names for {len(store)} pictures; remove the folder to build it again")
    return Gallery(store, names)


def gallery_card(gallery: Gallery) -> Json:
    """The entry of card.json about the pictures, by which `new_picture_store` notices changed pictures."""
    return {"pictures": {"count": len(gallery), "sha256": gallery.hash()}}


def _warn_of_equal_pictures(gallery: Gallery, examples: PictureExamples[Any], log: Log) -> None:
    """Log how many held-out pictures look exactly like a training picture, although their names differ."""

    def looks(name: str) -> bytes:
        return hashlib.sha256(gallery.store[gallery.places[name]].tobytes()).digest()

    train = {looks(name) for name in {one.picture for one in examples.parts.train()}}
    held_out = {one.picture for found in examples.parts.held_out.values() for one in found}
    if equal := sum(looks(name) in train for name in held_out):
        log(f"warning: {equal:,} held-out pictures are equal to training pictures with other names")


# ---------------------------------------------------------------------------------------------------------------------
# Batches


def picture_mask(settings: PictureSettings, count: int) -> Tensor:
    """The mask [B, S] of the patches of `count` pictures: True everywhere."""
    rows, columns = (side // settings.patch_size for side in settings.size)
    return torch.ones(count, rows * columns, dtype=torch.bool)


def picture_input(pixels_BCYX: NDArray[np.uint8], settings: PictureSettings) -> Tensor:
    """The values [B, C, Y, X] that an encoder reads, from pictures of bytes: normalized, without random changes."""
    return to_input(torch.from_numpy(np.ascontiguousarray(pixels_BCYX)), settings)


def training_input(pixels_BCYX: NDArray[np.uint8], recipe: Recipe, position: int, strength: float) -> Tensor:
    """Like `picture_input`, with random changes, which depend only on the seed and on the position of the batch.

    `strength`: that of the stage of training (`ScheduleStage.strength`).
    """
    seed = batch_seed(recipe.train.seed, position)
    return augment(torch.from_numpy(np.ascontiguousarray(pixels_BCYX)), recipe.pictures, seed, strength)


def picture_lengths(
    settings: PictureSettings, lengths_N: NDArray[np.integer]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Lengths of N examples for `BatchStream`: the number of patches, or that of the tokens of a text if it is larger.

    So examples with short texts are not sorted by length. `lengths_N`: numbers of tokens; zeros without a text.
    """
    patches = picture_mask(settings, 1).numel()
    return np.maximum(lengths_N, patches).astype(np.uint32), np.zeros(len(lengths_N), np.uint32)


# ---------------------------------------------------------------------------------------------------------------------
# Held-out pictures, and pictures of users


@dataclass(frozen=True)
class HeldOutPictures(Generic[Example]):
    """Held-out examples of a part, and a gallery that has their pictures."""

    examples: list[Example]
    gallery: Gallery

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Example]:
        return iter(self.examples)

    def first(self, count: int) -> HeldOutPictures[Example]:
        """Only the first `count` examples."""
        return HeldOutPictures(self.examples[:count], self.gallery)

    def records(self) -> list[Json]:
        """The examples as JSON data, for held_out.jsonl. The first one of each picture has it as a PNG file."""
        records, kept = [], set[str]()
        for one in self.examples:
            record: Json = one._asdict()  # type: ignore[attr-defined]  # examples are NamedTuples
            if one.picture not in kept:
                record["png"] = to_data_url(self.gallery.pixels([one.picture])[0])
                kept.add(one.picture)
            records.append(record)
        return records


def kept_pictures(records: Iterable[Json]) -> Gallery:
    """The pictures in records that `HeldOutPictures.records` made, in the size in which they were stored."""
    names, pixels = [], []
    for record in records:
        if "png" in record:
            where, content = str(record["picture"]), base64.b64decode(str(record["png"]).partition(",")[2])
            own = PictureSettings(size=read_size(content, where), patch_size=1, convolutions=0)
            names.append(where)
            pixels.append(read_picture(content, where, own))
    return Gallery(PictureStore(Path(), np.stack(pixels) if pixels else np.empty((0, 3, 1, 1), np.uint8)), names)


def fit_pictures(pixels_BCYX: NDArray[np.uint8], settings: PictureSettings) -> NDArray[np.uint8]:
    """Pictures in the size of the settings; they are scaled if they have another size, e.g. that of another run."""
    if pixels_BCYX.shape[1:] == (settings.channels, *settings.size):
        return pixels_BCYX
    channels_last = pixels_BCYX.transpose(0, 2, 3, 1)
    if channels_last.shape[3] == 1:
        channels_last = channels_last.repeat(3, 3)
    return read_pictures(list(np.ascontiguousarray(channels_last)), settings)


def read_pictures(
    pictures: Sequence[str | Path | bytes | NDArray[np.uint8]], settings: PictureSettings
) -> NDArray[np.uint8]:
    """Read pictures of a user for a trained run: paths, contents of files, or arrays [Y, X, 3]: [B, C, Y, X]."""
    found = []
    for number, picture in enumerate(pictures, 1):
        if isinstance(picture, bytes):
            found.append(read_picture(picture, f"picture {number}", settings))
        elif isinstance(picture, np.ndarray):
            found.append(read_array(picture, f"picture {number}", settings))
        else:
            found.append(read_picture_file(picture, settings))
    return np.stack(found)
