"""The store of series for training: frames in one memory-mapped file; and how frames are normalized.

A store is a folder with the frames of all series one after another (`frames.npy`, [T, F]), the index of the label of
each frame or series (`labels.npy`), where each series starts in both (`offsets.npy`), and the names of labels and
series (`names.json`). The frames are stored as they were read; `Normalization` is applied when a batch is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.series import FrameValues, Series
from regard.data.store import StorePart
from regard.errors import RunError
from regard.files import atomic_folder

FRAMES, LABELS, OFFSETS, NAMES = "frames.npy", "labels.npy", "offsets.npy", "names.json"
REMEDY = "remove its folder to build the data again"


class Normalization(NamedTuple):
    """Mean and standard deviation of each number of the training frames. Numbers that are constant have deviation 1."""

    mean_F: NDArray[np.float32]
    deviation_F: NDArray[np.float32]

    @classmethod
    def of(cls, series: Iterable[FrameValues]) -> Normalization:
        """Compute the statistics of all frames of some series, in double precision."""
        count, center = 0, np.zeros(1)
        total = squares = np.zeros(1)
        for frames in series:
            if not count:
                center = frames.astype(np.float64).mean(0)  # near the mean, so that the difference below is precise
            moved = frames - center
            count += len(frames)
            total, squares = total + moved.sum(0), squares + (moved**2).sum(0)
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
        center = center + mean
        is_constant = deviation <= 1e-6 * np.maximum(np.abs(center), 1e-6)
        return cls(center.astype(np.float32), np.where(is_constant, 1.0, deviation).astype(np.float32))

    def apply(self, frames: FrameValues) -> FrameValues:
        """Normalize frames [T, F] to mean 0 and deviation 1."""
        return ((frames - self.mean_F) / self.deviation_F).astype(np.float32)

    def to_json(self) -> bytes:
        table = {"mean": self.mean_F.tolist(), "deviation": self.deviation_F.tolist()}
        return (json.dumps(table) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes, where: str | Path) -> Normalization:
        try:
            table = json.loads(content)
            mean_F, deviation_F = (np.array(table[name], np.float32) for name in ("mean", "deviation"))
            if mean_F.ndim != 1 or mean_F.shape != deviation_F.shape or not (deviation_F > 0).all():
                raise ValueError("mean and deviation do not fit")
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{where}: not a normalization ({error}); take the file from a copy of the run") from None
        return cls(mean_F, deviation_F)


class FrameStore:
    """Series in memory-mapped files: `store[n]` is series n as `Series`. Made by `write_frames` and `open_frames`."""

    def __init__(self, frames: FrameValues, labels: NDArray[np.uint32], offsets_N2: NDArray[np.int64], names: Any):
        """`offsets_N2`: where each series starts in `frames` and in `labels`, and at the end their sizes."""
        self._frames, self._labels, self._offsets_N2 = frames, labels, offsets_N2
        self.labels: tuple[str, ...] = tuple(names["labels"])
        """The labels, in the order of their indices."""
        self.width: int = frames.shape[1]
        """Number of numbers per frame."""
        self.names: tuple[str, ...] = tuple(names["series"])
        self.weights = tuple(StorePart(*part) for part in names["parts"])
        """For each file, where its series end, and how often an epoch uses them."""
        self.lengths: NDArray[np.int64] = np.diff(offsets_N2[:, 0])
        """Number of frames of each series."""

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Series:
        if not 0 <= index < len(self):
            raise IndexError(f"series {index} does not exist: the store has {len(self)} series, from 0")
        frames, numbers = self.part(index, 0, int(self.lengths[index]))
        return Series(frames, tuple(self.labels[number] for number in numbers.tolist()), self.names[index])

    def part(self, index: int, start: int, end: int) -> tuple[FrameValues, NDArray[np.uint32]]:
        """The frames `start` to `end` - 1 of a series, and their labels, or the label of the series; both as views."""
        first, first_label = self._offsets_N2[index].tolist()
        one_label = self._offsets_N2[index + 1, 1] - first_label == 1
        labels = slice(first_label, first_label + 1) if one_label else slice(first_label + start, first_label + end)
        return self._frames[first + start : first + end], self._labels[labels]

    def label_counts(self) -> NDArray[np.int64]:
        """How many frames, or series, have each label."""
        return np.bincount(self._labels, minlength=len(self.labels))

    def close(self) -> None:
        """Release the memory-mapped files, so that Windows can remove them. No series can be read afterwards."""
        self._frames, self._labels = np.empty((0, 1), np.float32), np.empty(0, np.uint32)
        self._offsets_N2 = np.zeros((1, 2), np.int64)


def write_frames(
    folder: Path, series: Sequence[Series], labels: Sequence[str], width: int, parts: Sequence[StorePart] = ()
) -> None:
    """Store series in a new folder. `labels`: all labels; `width`: numbers of a frame, for a store without series.

    `parts`: the files of the series, in the order of `series`.
    """
    number: Mapping[str, int] = {label: place for place, label in enumerate(labels)}
    lengths = [(len(one.frames), len(one.labels)) for one in series]
    offsets = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(lengths, 0).reshape(-1, 2)]).astype(np.int64)
    with atomic_folder(folder) as draft:
        stored = np.lib.format.open_memmap(draft / FRAMES, "w+", np.float32, shape=(int(offsets[-1, 0]) or 1, width))
        for one, (start, _) in zip(series, offsets[:-1].tolist(), strict=True):
            stored[start : start + len(one.frames)] = one.frames
        stored.flush()
        del stored
        numbers = [number[label] for one in series for label in one.labels]
        np.save(draft / LABELS, np.array(numbers, np.uint32), allow_pickle=False)
        np.save(draft / OFFSETS, offsets, allow_pickle=False)
        names = {"labels": list(labels), "series": [one.name for one in series], "parts": list(parts)}
        (draft / NAMES).write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")


def open_frames(folder: Path, *, mapped: bool = True) -> FrameStore:
    """Open a store, memory-mapped or, if not `mapped`, in memory. A damaged or incomplete store is an error."""
    try:
        frames = np.load(folder / FRAMES, mmap_mode="r" if mapped else None, allow_pickle=False).view(np.ndarray)
        labels, offsets = (np.load(folder / name, allow_pickle=False) for name in (LABELS, OFFSETS))
        names = json.loads((folder / NAMES).read_text(encoding="utf-8"))
        fits = offsets.shape == (len(names["series"]) + 1, 2) and max(offsets[-1, 0], 1) == len(frames)
        if not fits or frames.dtype != np.float32 or offsets[-1, 1] != len(labels):
            raise ValueError("its files disagree")
        if len(labels) and labels.max() >= len(names["labels"]):
            raise ValueError("a label has no name")
    except (OSError, ValueError, EOFError, KeyError, TypeError, IndexError) as error:
        raise RunError(f"{folder}: cannot read the stored series ({error}); {REMEDY}") from None
    return FrameStore(frames, labels, offsets, names)
