"""Training data of taggers of frames: held-out parts, windows, the stored series in a run folder, and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import Corpus, DataSettings, Recipe
from regard.data.batches import Index
from regard.data.frame_store import FrameStore, Normalization, write_frames
from regard.data.series import FrameValues, Series, read_series, require_width
from regard.data.split import PARTS, held_out_sizes
from regard.errors import CorpusError
from regard.run import Run
from regard.tasks import single_file
from regard.tasks.dataset import HELD_OUT, Log, Parts, hold_out, new_store, require_train, store_parts
from regard.tasks.tag.data import TagBatch
from regard.tasks.tag.settings import TagSettings
from regard.tasks.timelines import label_runs

FEW = 20
"""With fewer series, blocks of them are held out, not whole series."""
BLOCKS = 20
"""Number of blocks into which the frames of a few long series are divided."""
TRIALS = 200
"""Number of random choices of held-out blocks, of which the one with the most similar labels is taken."""


def make_frames(
    series: Sequence[FrameValues], normalization: Normalization, labels: Sequence[Sequence[int]] = (),
    index: Index | None = None,
) -> TagBatch:  # fmt: skip
    """Make a batch of series of frames, normalized, with zeros as padding.

    `labels` has the label index of each frame, if known. `index` has the index of each series in the training data.
    """
    lengths_B = np.fromiter(map(len, series), np.int64, len(series))
    mask_BT = np.arange(lengths_B.max()) < lengths_B[:, None]
    frames_BTF = np.zeros((*mask_BT.shape, series[0].shape[1]), np.float32)
    frames_BTF[mask_BT] = normalization.apply(np.concatenate(series))
    target_BT = np.zeros(mask_BT.shape, np.int64)
    if len(labels):
        target_BT[mask_BT] = np.concatenate(labels)
    index_B = torch.arange(len(series)) if index is None else torch.tensor(index, dtype=torch.int64)
    mask_BT1 = torch.from_numpy(mask_BT[:, :, None])
    return TagBatch(torch.from_numpy(frames_BTF), mask_BT1, torch.from_numpy(target_BT), index_B)


# ---------------------------------------------------------------------------------------------------------------------
# Held-out parts


def hold_out_frames(
    data: DataSettings, found: Sequence[list[Series]], read: Callable[[Corpus], list[Series]], gap: int, seed: int
) -> Parts[Series]:
    """Divide series into training, validation and test: whole series or, if there are few, blocks of them.

    Equal series are never in two parts. Between blocks of different parts, at least `gap` frames are left out.
    """
    needs_parts = not data.valid
    if needs_parts and sum(map(len, found)) < FEW:
        return _hold_out_blocks(data, found, read, gap, seed)
    return hold_out(data, found, read, lambda series: series.content, "series", seed)


def _hold_out_blocks(
    data: DataSettings, found: Sequence[list[Series]], read: Callable[[Corpus], list[Series]], gap: int, seed: int
) -> Parts[Series]:
    total = sum(len(one.frames) for series in found for one in series)
    length = max(total // BLOCKS, 4 * gap, 1)
    bounds = [[block_bounds(len(one.frames), length) for one in series] for series in found]
    count = sum(len(own) - 1 for per_file in bounds for own in per_file)
    if count < 5:
        problem = f"{total:,} frames are too few to hold out blocks with a gap of {gap} frames"
        advice = "give --valid FILE, more frames, or a smaller tag.gap"
        raise CorpusError(data.train[0].source, f"{problem}; {advice}")
    valid, test = held_out_sizes(data, max(count // 10, 1))
    labels = {label: place for place, label in enumerate(sorted({a for f in found for one in f for a in one.labels}))}
    counts = [
        np.bincount([labels[label] for label in one.labels[start:end]], minlength=len(labels))
        for series, per_file in zip(found, bounds, strict=True)
        for one, own in zip(series, per_file, strict=True)
        for start, end in pairwise(own)
    ]
    numbers = iter(_draw_blocks(np.array(counts), valid, test, seed).tolist())
    parts: Parts[Series] = Parts("series", [])
    for name, held_out in parts.held_out.items():
        held_out += [one for corpus in getattr(data, name) for one in read(corpus)]
    for corpus, series, per_file in zip(data.train, found, bounds, strict=True):
        own: dict[str, list[Series]] = {part: [] for part in PARTS}
        for one, bound in zip(series, per_file, strict=True):
            drawn = [next(numbers) for _ in bound[1:]]
            for part, piece in _cut(one, bound, drawn, gap):
                own[PARTS[part]].append(piece)
        parts.corpora.append((own["train"], corpus.weight))
        for name, held_out in parts.held_out.items():
            held_out += own[name]
    return parts


def block_bounds(frames: int, length: int) -> list[int]:
    """The bounds of blocks of about `length` frames in a series of `frames` frames."""
    count = max(frames // length, 1)
    return [place * frames // count for place in range(count + 1)]


def _draw_blocks(counts_NL: NDArray[np.int64], valid: int, test: int, seed: int) -> NDArray[np.int64]:
    """For each of N blocks, the index of its part in `PARTS`. `counts_NL`: how often each block has each label.

    Of several random choices, take one in which every part has every label, if there is one, with similar shares.
    """
    chance = np.random.Generator(np.random.PCG64(seed % (1 << 64)))
    best, best_cost = np.zeros(len(counts_NL), np.int64), (np.inf, np.inf, np.inf)
    for _ in range(TRIALS):
        order, drawn = chance.permutation(len(counts_NL)), np.zeros(len(counts_NL), np.int64)
        drawn[order[:valid]], drawn[order[valid : valid + test]] = 1, 2
        sums = [counts_NL[drawn == part].sum(0) for part in range(3)]
        whole = counts_NL.sum(0) / counts_NL.sum()
        different = sum(float(np.abs(one / max(one.sum(), 1) - whole).sum()) for one in sums if one.any())
        missing = sum(int((one == 0).sum()) for one in sums[1:] if one.any())
        if (cost := (float((sums[0] == 0).sum()), float(missing), different)) < best_cost:
            best, best_cost = drawn, cost
    return best


def _cut(series: Series, bounds: Sequence[int], drawn: Sequence[int], gap: int) -> Iterator[tuple[int, Series]]:
    """Cut a series at the bounds between blocks of different parts. Held-out pieces lose `gap` frames at each cut."""
    for part, group in groupby(range(len(drawn)), key=drawn.__getitem__):
        blocks = list(group)
        start, end = bounds[blocks[0]], bounds[blocks[-1] + 1]
        if part:
            start, end = start + gap * (start > 0), end - gap * (end < len(series.frames))
        if (start, end) == (0, len(series.frames)):
            yield part, series
        else:
            yield (
                part,
                Series(
                    series.frames[start:end], series.labels[start:end], f"{series.name}, frames {start} to {end - 1}"
                ),
            )


# ---------------------------------------------------------------------------------------------------------------------
# Windows


class TrainingWindow(NamedTuple):
    """A window of a training series: `length` frames, usually from frame `start` on."""

    series: int
    start: int
    length: int
    most: int
    """The largest possible start of a window of this length."""


def training_windows(lengths: Sequence[int], most: int) -> list[TrainingWindow]:
    """Windows of at most `most` frames in series of these lengths; in a longer series, windows overlap by half."""
    found = []
    for place, length in enumerate(lengths):
        size, last = min(length, most), max(length - most, 0)
        steps = -(-last // max(most // 2, 1))
        found += [TrainingWindow(place, last * step // max(steps, 1), size, last) for step in range(steps + 1)]
    return found


def shifts(windows: Sequence[TrainingWindow], most: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The start of each window in one epoch: moved at random by up to a quarter of `most` frames."""
    chance = np.random.Generator(np.random.PCG64([seed % (1 << 64), epoch, 1]))
    starts, ends = (np.array(side, np.int64) for side in zip(*((one.start, one.most) for one in windows), strict=True))
    return np.clip(starts + chance.integers(-(most // 4), most // 4, len(windows), endpoint=True), 0, ends)


# ---------------------------------------------------------------------------------------------------------------------
# Training data


@dataclass(frozen=True)
class FrameFacts:
    """Statistics of the training series, from which the plan chooses settings."""

    series: int
    frames: int
    """Number of frames of all series."""
    longest: int
    width: int
    labels: int
    segment: float
    """Mean number of consecutive frames with the same label."""
    rarest: float
    """Share of the frames that have the rarest label."""


@dataclass(frozen=True)
class PreparedFrames:
    """The stored training series of a tagger, and its validation and test series."""

    train: FrameStore
    valid: list[Series]
    test: list[Series]
    normalization: Normalization
    labels: tuple[str, ...]


class TrainingFrames:
    """The labeled series for training, validation and test, read from files."""

    def __init__(self, recipe: Recipe):
        data, settings = recipe.data, recipe.task
        require_train(data, "a file or folder of labeled frames")

        def read(corpus: Corpus) -> list[Series]:
            return read_series(single_file(corpus, "frames and labels"), recipe.pictures, labeled="frames")

        assert isinstance(settings, TagSettings)
        found = [read(corpus) for corpus in data.train]
        self.width = found[0][0].frames.shape[1]
        self.parts = hold_out_frames(data, found, read, settings.gap, recipe.train.seed)
        where, first = data.train[0].source, f"{data.train[0].source}, the first file,"
        for corpus, series in zip(data.train, found, strict=True):
            require_width(series, self.width, corpus.source, first)
        for part, held_out in self.parts.held_out.items():
            require_width(held_out, self.width, f"the {part} data", first)
        self.labels = tuple(sorted({label for one in self.parts.train() for label in one.labels}))
        """The labels in training. Held-out frames with other labels count as mistakes."""
        if len(self.labels) < 2:
            problem = f'every frame is labeled "{self.labels[0]}"; training needs at least two labels'
            raise CorpusError(where, f"{problem}: give other data")

    def __len__(self) -> int:
        return len(self.parts)

    def describe(self) -> str:
        sizes = [self.facts.frames, *(sum(len(one.frames) for one in self.parts.held_out[part]) for part in HELD_OUT)]
        counts = f"{sizes[0]:,} frames to train on, {sizes[1]:,} for validation, {sizes[2]:,} for the test"
        return f"{self.parts.describe()}; {counts}; {self.width} numbers per frame, {len(self.labels)} labels"

    @cached_property
    def facts(self) -> FrameFacts:
        series = list(self.parts.train())
        frames = sum(len(one.frames) for one in series)
        number = {label: place for place, label in enumerate(self.labels)}
        counts = sum(np.bincount([number[a] for a in one.labels], minlength=len(number)) for one in series)
        return FrameFacts(
            series=len(series),
            frames=frames,
            longest=max(len(one.frames) for one in series),
            width=self.width,
            labels=len(self.labels),
            segment=frames / sum(1 for one in series for _ in label_runs(one.labels)),
            rarest=float(np.min(counts)) / frames,
        )


def write_store(run: Run, examples: TrainingFrames, log: Log) -> None:
    """Write the series of all parts into the folder store/ of a run; `log` receives progress messages."""
    log(f"storing {len(examples):,} series")
    train = list(examples.parts.train())
    labels = sorted({label for one in examples.parts.held_out.values() for series in one for label in series.labels})
    with new_store(run, {}) as folder:
        parts = store_parts((len(series), weight) for series, weight in examples.parts.corpora)
        write_frames(folder / "train", train, run.labels, examples.width, parts)
        for part, held_out in examples.parts.held_out.items():
            write_frames(folder / part, held_out, labels, examples.width)
