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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import RunError
from regard.system import sync_folder

if TYPE_CHECKING:
    from regard.data.corpus import Pair
    from regard.data.tokenizer import Tokenizer

FORMAT = 1
ID_TYPES = ("<u2", "<u4")
OFFSET = np.dtype("<i8")
CHUNK = 4096
"""Pairs encoded at a time."""

Ids = NDArray[np.unsignedinteger]


class Part(NamedTuple):
    """The pairs of one corpus: those before `end` that no part before holds, each shown `weight` times an epoch."""

    end: int
    weight: float


@dataclass(frozen=True)
class Header:
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
    parts: tuple[Part, ...] = ()
    format: int = FORMAT


class Store:
    """Stored pairs, by number; made by `build_store` or `open_store`."""

    def __init__(self, header: Header, ids: Ids, offsets: NDArray[np.int64]):
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
    def weights(self) -> tuple[Part, ...]:
        """How often the pairs of each corpus are shown in an epoch."""
        return self.header.parts


def build_store(
    folder: Path,
    corpora: Iterable[tuple[Iterable[Pair], float]],
    source: Tokenizer,
    target: Tokenizer,
    max_length: int,
    progress: Callable[[int], None] | None = None,
) -> Store:
    """Encode corpora, each with its weight, into a new folder. `progress` hears how many pairs have been read.

    Pairs with an empty side, or with more than `max_length` tokens on one, are left out and counted. What an
    interrupted build left behind is removed, so one process builds a store, and others wait for it.
    """
    if folder.exists():
        raise RunError(f"{folder}: is there already; remove it to build the token store again")
    dtype = ID_TYPES[max(source.size, target.size) > 1 << 16]
    header = Header(source.hash(), target.hash(), max_length, dtype)
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


def open_store(folder: Path) -> Store:
    """Map a stored folder into memory, after checking that it is complete."""
    header = _read_header(folder / "header.json")
    ids = _map(folder / "ids", np.dtype(header.dtype), header.tokens)
    offsets = _map(folder / "offsets", OFFSET, 2 * header.pairs + 1)
    if offsets[-1] != header.tokens:
        raise RunError(f"{folder}: the token store is damaged (offsets and ids disagree); remove it to build it again")
    return Store(header, ids, offsets)


def _fill(
    folder: Path,
    header: Header,
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
            parts.append(Part(writer.pairs, weight))
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

    def __init__(self, ids: BinaryIO, offsets: BinaryIO, header: Header):
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


def _read_header(path: Path) -> Header:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        header = Header(**{**table, "parts": tuple(Part(*part) for part in table["parts"])})
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
