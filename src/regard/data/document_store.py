"""Documents as token ids: stored in a folder, mapped into memory, joined into the tensors that a classifier gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.store import Ids, Part
from regard.errors import RunError

Sentences = Sequence[Ids | list[int]]
"""The token ids of a document, sentence by sentence."""

_ARRAYS = ("ids", "lengths", "sentences", "labels", "label_counts", "part_ends", "part_weights")


class DocumentStore:
    """Labelled documents by number."""

    def __init__(self, arrays: dict[str, NDArray[np.generic]]):
        """`ids` of all tokens, `lengths` of all sentences, numbers of `sentences` a document; `labels` likewise."""
        self._arrays = arrays
        self._sentence_ends = np.cumsum(arrays["sentences"], dtype=np.int64)
        self._token_ends = np.cumsum(arrays["lengths"], dtype=np.int64)
        self._label_ends = np.cumsum(arrays["label_counts"], dtype=np.int64)
        starts = np.concatenate([[0], self._token_ends])
        self.tokens: Ids = np.diff(starts[np.concatenate([[0], self._sentence_ends])]).astype(np.uint32)
        """Numbers of tokens, document by document."""

    def __len__(self) -> int:
        return len(self._sentence_ends)

    def __getitem__(self, index: int) -> tuple[list[Ids], list[int]]:
        """Sentences and numbers of the labels of a document."""
        first, last = self._bounds(self._sentence_ends, index)
        ends = self._token_ends[first:last].tolist()
        starts = [int(self._token_ends[first - 1]) if first else 0, *ends[:-1]]
        ids: Ids = self._arrays["ids"]  # type: ignore[assignment]
        one, other = self._bounds(self._label_ends, index)
        labels = self._arrays["labels"][one:other].tolist()
        return [ids[start:end] for start, end in zip(starts, ends, strict=True)], labels

    def close(self) -> None:
        """Let go of the files, so that every system can rename and remove them. Nothing can be read afterwards."""
        self._arrays = {}

    @property
    def sentence_counts(self) -> Ids:
        """Numbers of sentences, document by document."""
        counts: Ids = self._arrays["sentences"]  # type: ignore[assignment]
        return counts

    @property
    def weights(self) -> tuple[Part, ...]:
        """How often the documents of each corpus are shown in an epoch."""
        pairs = zip(self._arrays["part_ends"].tolist(), self._arrays["part_weights"].tolist(), strict=True)
        return tuple(Part(end, weight) for end, weight in pairs)

    def label_counts(self, labels: int) -> NDArray[np.int64]:
        """How many documents have each label."""
        found: NDArray[np.int64] = np.bincount(self._arrays["labels"].astype(np.int64), minlength=labels)
        return found

    @staticmethod
    def _bounds(ends: NDArray[np.int64], index: int) -> tuple[int, int]:
        return int(ends[index - 1]) if index else 0, int(ends[index])


def write_documents(
    folder: Path, documents: Iterable[tuple[Sentences, Sequence[int]]], parts: Sequence[Part], vocabulary: int
) -> None:
    """Store documents, given with the numbers of their labels, in a new folder."""
    sentences, label_lists = zip(*documents, strict=True)
    kind = np.uint16 if vocabulary <= 1 << 16 else np.uint32
    every = list(chain.from_iterable(sentences))
    content = {
        "ids": np.fromiter(chain.from_iterable(every), kind),
        "lengths": np.fromiter(map(len, every), np.uint32),
        "sentences": np.fromiter(map(len, sentences), np.uint32),
        "labels": np.fromiter(chain.from_iterable(label_lists), np.uint32),
        "label_counts": np.fromiter(map(len, label_lists), np.uint32),
        "part_ends": np.array([part.end for part in parts], np.int64),
        "part_weights": np.array([part.weight for part in parts], np.float64),
    }
    try:
        folder.mkdir()
        for name in _ARRAYS:
            np.save(folder / f"{name}.npy", content[name], allow_pickle=False)
    except OSError as error:
        raise RunError(f"{folder}: cannot write the documents ({error.strerror})") from None


def open_documents(folder: Path) -> DocumentStore:
    """Map stored documents into memory."""
    try:
        return DocumentStore(
            {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in _ARRAYS}
        )
    except (OSError, ValueError) as error:
        raise RunError(f"{folder}: cannot read the documents ({error}); remove it to prepare them again") from None


# ---------------------------------------------------------------------------------------------------------------------
# Tensors


@dataclass(frozen=True)
class DocumentBatch:
    """Documents of segments of tokens, and their labels if they have any."""

    ids_BUS: Tensor
    mask_BUS: Tensor
    target_BL: Tensor
    """1 for each label that a document has."""
    index_B: Tensor
    """Which documents these are."""

    @property
    def target_tokens(self) -> int:
        """What the loss is summed over: documents."""
        return len(self.target_BL)

    def to(self, device: torch.device | str) -> DocumentBatch:
        """The same on another device."""
        return DocumentBatch(
            self.ids_BUS.to(device), self.mask_BUS.to(device), self.target_BL.to(device), self.index_B.to(device)
        )

    def rows(self, index_R: Tensor) -> DocumentBatch:
        """Some of the documents, padded as before."""
        return DocumentBatch(
            self.ids_BUS[index_R], self.mask_BUS[index_R], self.target_BL[index_R], self.index_B[index_R]
        )


def make_documents(
    documents: Sequence[Sentences], pad: int, window: int = 0, labels: Sequence[Sequence[int]] = (), count: int = 0,
    index: NDArray[np.int64] | None = None,
) -> DocumentBatch:  # fmt: skip
    """Join documents into tensors; with a `window`, sentences that fit into it together are one segment.

    `labels` are those of each document, of `count` that there are.
    """
    segments = [_segments([len(sentence) for sentence in sentences], window) for sentences in documents]
    lengths_BU = np.zeros((len(documents), max(map(len, segments))), np.int64)
    for row, found in enumerate(segments):
        lengths_BU[row, : len(found)] = found
    mask_BUS = np.arange(lengths_BU.max()) < lengths_BU[:, :, None]
    ids_BUS = np.full(mask_BUS.shape, pad, np.int64)
    ids_BUS[mask_BUS] = np.concatenate([ids for sentences in documents for ids in sentences])
    target_BL = torch.zeros(len(documents), count)
    for row, numbers in enumerate(labels):
        target_BL[row, list(numbers)] = 1.0
    index_B = torch.arange(len(documents)) if index is None else torch.tensor(index, dtype=torch.int64)
    return DocumentBatch(torch.from_numpy(ids_BUS), torch.from_numpy(mask_BUS), target_BL, index_B)


def _segments(lengths: Sequence[int], window: int) -> Sequence[int]:
    """Lengths of the segments: the sentences themselves, or as many neighbours as fit into a window."""
    if not window:
        return lengths
    joined = [lengths[0]]
    for length in lengths[1:]:
        if joined[-1] + length <= window:
            joined[-1] += length
        else:
            joined.append(length)
    return joined
