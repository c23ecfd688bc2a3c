"""The token store: the token ids of the training data, in memory-mapped files.

A store is a folder of ragged arrays: `ids` holds the ids of all sequences, one after another, and `ids.offsets` the
position where each sequence starts. In a store of pairs, sequences 2n and 2n + 1 are the source and the target of pair
n. In a store of documents, `documents.offsets` holds the index of the first sequence of each document (a sequence is a
sentence, or for a tagger a word), and `labels` is a second ragged array with one row per document. `header.json` has
the sizes of all arrays. A store is written in one pass, in memory that does not grow with the text, and gets its name
only when it is complete.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import RunError
from regard.files import atomic_folder, chunks, remove_drafts

if TYPE_CHECKING:
    from regard.data.pairs import Pair
    from regard.text.tokenizer import Tokenizer


FORMAT = 1
ID_TYPES = ("<u2", "<u4")
LABEL = np.dtype("<u4")
OFFSET = np.dtype("<i8")
CHUNK = 4096  # number of pairs or documents to encode and write at a time
HEADER, IDS, LABELS, DOCUMENTS = "header.json", "ids", "labels", "documents.offsets"

Ids = NDArray[np.unsignedinteger]
Sentences = Sequence[Ids | list[int]]
"""The token ids of several sentences, e.g. of a document."""


class StorePart(NamedTuple):
    """One corpus in a store: its items, from the `end` of the part before to `end` - 1, and their uses per epoch."""

    end: int
    weight: float


@dataclass(frozen=True)
class StoreHeader:
    """The content of `header.json`: sizes and data type of the arrays of a store, and its corpora and tokenizers."""

    dtype: str
    """Type of the ids: "<u2" if all ids of the vocabularies fit into 16 bits, else "<u4"."""
    items: int = 0
    """Number of pairs or documents."""
    sequences: int = 0
    tokens: int = 0
    labels: int = 0
    """Number of labels of all documents together."""
    parts: tuple[StorePart, ...] = ()
    max_length: int = 0
    """Largest number of tokens on one side of a pair; 0: no limit."""
    source_hash: str = ""
    """`Tokenizer.hash` of the source tokenizer, in a store of pairs."""
    target_hash: str = ""
    left_out_empty: int = 0
    """Number of pairs left out because a side had no token."""
    left_out_long: int = 0
    """Number of pairs left out because a side had more than `max_length` tokens."""
    format: int = FORMAT


class Ragged(NamedTuple):
    """Rows of different lengths in one array: row n is `values[offsets[n] : offsets[n + 1]]`."""

    values: Ids
    offsets: NDArray[np.int64]

    def rows(self, first: int, last: int) -> list[Ids]:
        """The rows from `first` up to, but not including, `last`, as views of `values`."""
        return [self.values[start:end] for start, end in pairwise(self.offsets[first : last + 1].tolist())]


NOTHING = Ragged(np.empty(0, np.uint16), np.empty(0, OFFSET))


# ---------------------------------------------------------------------------------------------------------------------
# Pairs


class TokenStore:
    """Token ids of sentence pairs: `store[n]` is pair n. Made by `build_store` or `open_store`."""

    def __init__(self, header: StoreHeader, ids: Ragged):
        self.header, self.weights = header, header.parts
        self._ids, self._offsets = ids

    def __len__(self) -> int:
        return self.header.items

    def __getitem__(self, index: int) -> tuple[Ids, Ids]:
        """Source and target ids of a pair, as views into the file."""
        if not 0 <= index < self.header.items:
            raise IndexError(f"pair {index} does not exist: the store has {len(self)} pairs, from 0")
        start, middle, end = self._offsets[2 * index : 2 * index + 3].tolist()
        return self._ids[start:middle], self._ids[middle:end]

    def close(self) -> None:
        """Release the memory-mapped files, so that Windows can remove them. No pair can be read afterwards."""
        self._ids, self._offsets = NOTHING

    @cached_property
    def lengths(self) -> tuple[Ids, Ids]:
        """Number of source tokens and number of target tokens of each pair."""
        sides = np.empty((2, len(self)), np.uint16 if self.header.max_length < 1 << 16 else np.uint32)
        for start in range(0, len(self), 1 << 20):  # in parts: each difference takes 8 bytes
            end = min(start + (1 << 20), len(self))
            sides[:, start:end] = np.diff(self._offsets[2 * start : 2 * end + 1]).reshape(-1, 2).T
        return sides[0], sides[1]


def build_store(
    folder: Path, corpora: Iterable[tuple[Iterable[Pair], float]], source: Tokenizer, target: Tokenizer, max_length: int
) -> TokenStore:
    """Encode corpora, given as (pairs, weight), with the tokenizers of source and target, and store them in `folder`.

    Pairs with an empty side, or with more than `max_length` tokens on a side, are left out and counted. Temporary files
    of an interrupted build are removed, so the caller must know that no other process is building the same store.
    """
    if folder.exists():
        raise RunError(f"{folder}: exists already; remove it to build the token store again")
    remove_drafts(folder.parent, folder.name, folders=True)
    dtype, parts, read, empty = ID_TYPES[max(source.size, target.size) > 1 << 16], [], 0, 0
    with atomic_folder(folder) as draft:
        with _RaggedWriter(draft, IDS, np.dtype(dtype)) as ids:
            for corpus, weight in corpora:
                for chunk in chunks(corpus, CHUNK):
                    sources = source.encode_many([pair.source for pair in chunk])
                    targets = target.encode_many([pair.target for pair in chunk])
                    full = [pair for pair in zip(sources, targets, strict=True) if all(pair)]
                    kept = [pair for pair in full if max(map(len, pair)) <= max_length]
                    ids.add(list(chain.from_iterable(kept)))
                    read += len(chunk)
                    empty += len(chunk) - len(full)
                parts.append(StorePart(ids.rows // 2, weight))
        header = StoreHeader(
            dtype,
            items=ids.rows // 2,
            sequences=ids.rows,
            tokens=ids.size,
            parts=tuple(parts),
            max_length=max_length,
            source_hash=source.hash(),
            target_hash=target.hash(),
            left_out_empty=empty,
            left_out_long=read - empty - ids.rows // 2,
        )
        _write_header(draft, header)
    return open_store(folder)


def open_store(folder: Path) -> TokenStore:
    """Open a store of pairs (memory-mapped). A damaged or incomplete store is an error."""
    header = _read_header(folder)
    return TokenStore(header, _open_ragged(folder, IDS, np.dtype(header.dtype), 2 * header.items, header.tokens))


# ---------------------------------------------------------------------------------------------------------------------
# Documents


class DocumentStore:
    """Token ids and labels of documents: `store[n]` is document n. Made by `open_documents`."""

    def __init__(self, header: StoreHeader, ids: Ragged, first: NDArray[np.int64], labels: Ragged):
        """`first`: the index of the first sequence of each document, and at the end the number of sequences."""
        self.header, self.weights = header, header.parts
        self._ids, self._first, self._labels = ids, first, labels
        self.tokens: Ids = np.diff(ids.offsets[first]).astype(np.uint32)
        """Number of tokens of each document."""
        self.sentence_counts: Ids = np.diff(first).astype(np.uint32)
        """Number of sentences of each document."""

    def __len__(self) -> int:
        return self.header.items

    def __getitem__(self, index: int) -> tuple[list[Ids], list[int]]:
        """The sentences of a document as token ids, and the indices of its labels."""
        if not 0 <= index < len(self):
            raise IndexError(f"document {index} does not exist: the store has {len(self)} documents, from 0")
        (labels,) = self._labels.rows(index, index + 1)
        return self._ids.rows(int(self._first[index]), int(self._first[index + 1])), labels.tolist()

    def joined(self, index: NDArray[np.int64]) -> tuple[Ids, NDArray[np.int64]]:
        """The token ids of the documents with these indices, one after another, and the number of tokens of each."""
        lengths = self.tokens[index].astype(np.int64)
        starts = self._ids.offsets[self._first[index]] - (np.cumsum(lengths) - lengths)
        return self._ids.values[np.repeat(starts, lengths) + np.arange(lengths.sum())], lengths

    def token_counts(self, vocabulary: int) -> NDArray[np.int64]:
        """How often each token id occurs in all documents."""
        counts = np.zeros(vocabulary, np.int64)
        for start in range(0, len(self._ids.values), 1 << 22):  # in parts: counting needs 8 bytes per token
            counts += np.bincount(self._ids.values[start : start + (1 << 22)].astype(np.int64), minlength=vocabulary)
        return counts

    def close(self) -> None:
        """Release the memory-mapped files, so that Windows can remove them. No document can be read afterwards."""
        self._ids, self._first, self._labels = NOTHING, np.empty(0, OFFSET), NOTHING

    def label_counts(self, labels: int) -> NDArray[np.int64]:
        """For each label, the number of documents that have it. `labels`: how many labels there are."""
        return np.bincount(self._labels.values.astype(np.int64), minlength=labels)


def write_documents(
    folder: Path, documents: Iterable[tuple[Sentences, Sequence[int]]], parts: Sequence[StorePart], vocabulary: int
) -> None:
    """Store documents in a new folder. A document is a pair: its sentences as token ids, and the indices of its labels.

    `parts`: the corpora, in the order of `documents`. `vocabulary`: size of the vocabulary, which decides whether ids
    take 16 or 32 bits.
    """
    dtype, first = ID_TYPES[vocabulary > 1 << 16], [0]
    with atomic_folder(folder) as draft:
        with _RaggedWriter(draft, IDS, np.dtype(dtype)) as ids, _RaggedWriter(draft, LABELS, LABEL) as labels:
            for chunk in chunks(documents, CHUNK):
                for sentences, _ in chunk:
                    first.append(first[-1] + len(sentences))
                ids.add(list(chain.from_iterable(sentences for sentences, _ in chunk)))
                labels.add([found for _, found in chunk])
        (draft / DOCUMENTS).write_bytes(np.array(first, OFFSET).tobytes())
        _write_header(draft, StoreHeader(dtype, labels.rows, ids.rows, ids.size, labels.size, tuple(parts)))


def open_documents(folder: Path) -> DocumentStore:
    """Open a store of documents (memory-mapped). A damaged or incomplete store is an error."""
    header = _read_header(folder)
    ids = _open_ragged(folder, IDS, np.dtype(header.dtype), header.sequences, header.tokens)
    first = _map_offsets(folder, DOCUMENTS, IDS, header.items, header.sequences)
    return DocumentStore(header, ids, first, _open_ragged(folder, LABELS, LABEL, header.items, header.labels))


# ---------------------------------------------------------------------------------------------------------------------
# Files


class _RaggedWriter(ExitStack):
    """Appends rows to the two files of a ragged array (values and offsets); counts the rows and the values."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any]):
        super().__init__()
        self._dtype, self.rows, self.size = dtype, 0, 0
        self._values = self.enter_context((folder / name).open("wb"))
        self._offsets = self.enter_context((folder / f"{name}.offsets").open("wb"))
        self._offsets.write(np.zeros(1, OFFSET).tobytes())

    def add(self, rows: Sequence[Sequence[int] | Ids]) -> None:
        ends = self.size + np.cumsum([len(row) for row in rows], dtype=OFFSET)
        self._values.write(np.fromiter(chain.from_iterable(rows), self._dtype).tobytes())
        self._offsets.write(ends.tobytes())
        self.rows += len(rows)
        self.size += sum(map(len, rows))


def _open_ragged(folder: Path, name: str, dtype: np.dtype[Any], rows: int, size: int) -> Ragged:
    return Ragged(_map(folder / name, dtype, size), _map_offsets(folder, f"{name}.offsets", name, rows, size))


def _map_offsets(folder: Path, name: str, of: str, rows: int, size: int) -> NDArray[np.int64]:
    offsets = _map(folder / name, OFFSET, rows + 1)
    if offsets[-1] != size:
        raise RunError(f"{folder}: the token store is damaged ({name} and {of} disagree); remove it to build it again")
    return offsets


def _map(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Memory-map a file of `count` numbers, as a plain array, since slicing an `np.memmap` is several times slower."""
    expected = count * dtype.itemsize
    try:
        size = path.stat().st_size
        if size != expected:
            raise RunError(
                f"{path}: {size} bytes instead of {expected}; remove its folder to build the token store again"
            )
        return np.memmap(path, dtype, mode="r").view(np.ndarray) if count else np.empty(0, dtype)
    except OSError as error:
        raise RunError(
            f"{path}: cannot read the token store ({error.strerror}); remove its folder to build it again"
        ) from None


def _write_header(folder: Path, header: StoreHeader) -> None:
    (folder / HEADER).write_text(json.dumps(dataclasses.asdict(header), indent=1), encoding="utf-8")


def _read_header(folder: Path) -> StoreHeader:
    path = folder / HEADER
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        header = StoreHeader(**{**table, "parts": tuple(StorePart(*part) for part in table["parts"])})
        counts = (header.items, header.sequences, header.tokens, header.labels)
        if header.dtype not in ID_TYPES or not all(isinstance(count, int) for count in counts):
            raise ValueError
    except OSError as error:
        raise RunError(
            f"{path}: cannot read the token store ({error.strerror}); remove its folder to build it again"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{path}: not the header of a token store; remove its folder to build it again") from None
    if header.format != FORMAT:
        raise RunError(f"{path}: store format {header.format} is not supported; remove the folder to build it again")
    return header
