"""The token store: the ids of all training pairs in flat files that the system maps into memory as they are needed.

A store is a folder. `ids` holds source and target of pair 0, source and target of pair 1, and so on; `offsets` says
where each of these starts, `header.json` what they are. It is built in one pass over the text, in memory that does not
grow with it, and appears under its name whole or not at all.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import RunError
from regard.system import sync_folder

if TYPE_CHECKING:
    from regard.data.pairs import Pair
    from regard.text.tokenizer import Tokenizer


FORMAT = 1
ID_TYPES = ("<u2", "<u4")
OFFSET = np.dtype("<i8")
CHUNK = 4096
"""Pairs encoded at a time."""

Ids = NDArray[np.unsignedinteger]


class StorePart(NamedTuple):
    """The pairs of one corpus: those before `end` that no part before holds, each shown `weight` times an epoch."""

    end: int
    weight: float


@dataclass(frozen=True)
class StoreHeader:
    """What `header.json` says."""

    source_hash: str
    """`Tokenizer.hash` of the source side, and below of the target side."""
    target_hash: str
    max_length: int
    dtype: str
    """Of the ids: "<u2" when both vocabularies fit into it, else "<u4"."""
    pairs: int = 0
    tokens: int = 0
    """On both sides together."""
    left_out_empty: int = 0
    """Pairs left out because a side had no token."""
    left_out_long: int = 0
    """Pairs left out because a side had more than `max_length` tokens."""
    parts: tuple[StorePart, ...] = ()
    format: int = FORMAT


class TokenStore:
    """Stored pairs, by number; made by `build_store` or `open_store`."""

    def __init__(self, header: StoreHeader, ids: Ids, offsets: NDArray[np.int64]):
        """`offsets` has two entries a pair, and the number of tokens at its end."""
        self.header = header
        self._ids = ids
        self._offsets = offsets

    def __len__(self) -> int:
        return self.header.pairs

    def __getitem__(self, index: int) -> tuple[Ids, Ids]:
        """Source and target ids of a pair, as views into the file."""
        if not 0 <= index < self.header.pairs:
            raise IndexError(f"there is no pair {index} among {len(self)}")
        start, middle, end = self._offsets[2 * index : 2 * index + 3].tolist()
        return self._ids[start:middle], self._ids[middle:end]

    def close(self) -> None:
        """Let go of the files, so that every system can rename and remove them. No pair can be read afterwards."""
        self._ids, self._offsets = np.empty(0, self._ids.dtype), np.empty(0, OFFSET)

    @cached_property
    def lengths(self) -> tuple[Ids, Ids]:
        """Numbers of source tokens and of target tokens, pair by pair."""
        sides = np.empty((2, len(self)), np.uint16 if self.header.max_length < 1 << 16 else np.uint32)
        for start in range(0, len(self), 1 << 20):  # not all at once: a difference takes 8 bytes
            end = min(start + (1 << 20), len(self))
            sides[:, start:end] = np.diff(self._offsets[2 * start : 2 * end + 1]).reshape(-1, 2).T
        return sides[0], sides[1]

    @property
    def weights(self) -> tuple[StorePart, ...]:
        """How often the pairs of each corpus are shown in an epoch."""
        return self.header.parts


def build_store(
    folder: Path,
    corpora: Iterable[tuple[Iterable[Pair], float]],
    source: Tokenizer,
    target: Tokenizer,
    max_length: int,
    progress: Callable[[int], None] | None = None,
) -> TokenStore:
    """Encode corpora, each with its weight, into a new folder. `progress` hears how many pairs have been read.

    Pairs with an empty side, or with more than `max_length` tokens on one, are left out and counted. What an
    interrupted build left behind is removed, so one process builds a store, and others wait for it.
    """
    if folder.exists():
        raise RunError(f"{folder}: is there already; remove it to build the token store again")
    dtype = ID_TYPES[max(source.size, target.size) > 1 << 16]
    header = StoreHeader(source.hash(), target.hash(), max_length, dtype)
    unfinished = f"{folder.name}.tmp-"
    building = folder.with_name(f"{unfinished}{os.getpid()}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for leftover in [path for path in folder.parent.iterdir() if path.name.startswith(unfinished)]:
            shutil.rmtree(leftover)
        building.mkdir()
        _fill(building, header, corpora, source, target, progress)
        building.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise RunError(f"{folder}: cannot write the token store ({error.strerror})") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return open_store(folder)


def open_store(folder: Path) -> TokenStore:
    """Map a stored folder into memory, after checking that it is complete."""
    header = _read_header(folder / "header.json")
    ids = _map(folder / "ids", np.dtype(header.dtype), header.tokens)
    offsets = _map(folder / "offsets", OFFSET, 2 * header.pairs + 1)
    if offsets[-1] != header.tokens:
        raise RunError(f"{folder}: the token store is damaged (offsets and ids disagree); remove it to build it again")
    return TokenStore(header, ids, offsets)


def _fill(
    folder: Path,
    header: StoreHeader,
    corpora: Iterable[tuple[Iterable[Pair], float]],
    source: Tokenizer,
    target: Tokenizer,
    progress: Callable[[int], None] | None,
) -> None:
    parts = []
    with (folder / "ids").open("wb") as ids_file, (folder / "offsets").open("wb") as offsets_file:
        writer = _Writer(ids_file, offsets_file, header)
        for corpus, weight in corpora:
            for chunk in _chunks(corpus):
                writer.add(
                    source.encode_many([pair.source for pair in chunk]),
                    target.encode_many([pair.target for pair in chunk]),
                )
                if progress is not None:
                    progress(writer.read)
            parts.append(StorePart(writer.pairs, weight))
        _sync(ids_file)
        _sync(offsets_file)
    complete = dataclasses.replace(
        header,
        pairs=writer.pairs,
        tokens=writer.tokens,
        left_out_empty=writer.empty,
        left_out_long=writer.read - writer.empty - writer.pairs,
        parts=tuple(parts),
    )
    with (folder / "header.json").open("w", encoding="utf-8") as file:
        json.dump(dataclasses.asdict(complete), file, indent=1)
        _sync(file)
    sync_folder(folder)


class _Writer:
    """Appends pairs to the files of a store in the making, and counts them."""

    def __init__(self, ids: BinaryIO, offsets: BinaryIO, header: StoreHeader):
        self.ids, self.offsets, self.header = ids, offsets, header
        self.read = self.empty = self.pairs = self.tokens = 0
        self.offsets.write(np.zeros(1, OFFSET).tobytes())

    def add(self, sources: list[list[int]], targets: list[list[int]]) -> None:
        encoded = list(zip(sources, targets, strict=True))
        full = [pair for pair in encoded if all(pair)]
        kept = [pair for pair in full if max(map(len, pair)) <= self.header.max_length]
        sides = list(chain.from_iterable(kept))
        ends = self.tokens + np.cumsum([len(side) for side in sides], dtype=OFFSET)
        self.ids.write(np.fromiter(chain.from_iterable(sides), self.header.dtype).tobytes())
        self.offsets.write(ends.tobytes())
        self.read += len(encoded)
        self.empty += len(encoded) - len(full)
        self.pairs += len(kept)
        self.tokens += sum(map(len, sides))


def _chunks(corpus: Iterable[Pair]) -> Iterator[list[Pair]]:
    pairs = iter(corpus)
    while chunk := list(islice(pairs, CHUNK)):
        yield chunk


def _sync(file: IO[bytes] | IO[str]) -> None:
    """Make sure that a file survives a power cut before its folder gets its name."""
    file.flush()
    os.fsync(file.fileno())


def _read_header(path: Path) -> StoreHeader:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        header = StoreHeader(**{**table, "parts": tuple(StorePart(*part) for part in table["parts"])})
        if header.dtype not in ID_TYPES or not all(isinstance(count, int) for count in (header.pairs, header.tokens)):
            raise ValueError
    except OSError as error:
        raise RunError(f"{path}: cannot read the token store ({error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{path}: not the header of a token store; remove its folder to build it again") from None
    if header.format != FORMAT:
        raise RunError(f"{path}: format {header.format} is unknown here; remove the store's folder to build it again")
    return header


def _map(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """An array over a file, read when touched. A plain array: slices of `np.memmap` take several times as long."""
    expected = count * dtype.itemsize
    try:
        size = path.stat().st_size
        if size != expected:
            problem = f"{size} bytes instead of {expected}; remove its folder to build the token store again"
            raise RunError(f"{path}: {problem}")
        return np.memmap(path, dtype, mode="r").view(np.ndarray) if count else np.empty(0, dtype)
    except OSError as error:
        raise RunError(f"{path}: cannot read the token store ({error.strerror})") from None


# Documents as token ids: stored in a folder, mapped into memory, joined into the tensors that a classifier gets.


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
    def weights(self) -> tuple[StorePart, ...]:
        """How often the documents of each corpus are shown in an epoch."""
        pairs = zip(self._arrays["part_ends"].tolist(), self._arrays["part_weights"].tolist(), strict=True)
        return tuple(StorePart(end, weight) for end, weight in pairs)

    def label_counts(self, labels: int) -> NDArray[np.int64]:
        """How many documents have each label."""
        found: NDArray[np.int64] = np.bincount(self._arrays["labels"].astype(np.int64), minlength=labels)
        return found

    @staticmethod
    def _bounds(ends: NDArray[np.int64], index: int) -> tuple[int, int]:
        return int(ends[index - 1]) if index else 0, int(ends[index])


def write_documents(
    folder: Path, documents: Iterable[tuple[Sentences, Sequence[int]]], parts: Sequence[StorePart], vocabulary: int
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
