"""Writing corpora: all or nothing. A file appears under its name when it is whole, and never half."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from regard.data.files import require, split_suffix
from regard.data.formats import Pair
from regard.errors import CorpusError, SettingsError


@contextmanager
def atomic_files(paths: Sequence[Path], *, force: bool = False) -> Iterator[list[TextIO]]:
    """Open text files (.gz and .zst are packed) that take their names, replacing what was there, when the block ends.

    Until then they lie beside their place under another name; an error removes them. What exists is refused unless
    `force` says otherwise.
    """
    for path in paths:
        _check_place(path, force)
    drafts = [path.with_name(f".{path.name}.{os.getpid()}.part") for path in paths]
    try:
        with ExitStack() as stack:
            yield [stack.enter_context(_draft(path, draft)) for path, draft in zip(paths, drafts, strict=True)]
        for path, draft in zip(paths, drafts, strict=True):
            os.replace(draft, path)
        for folder in {path.parent for path in paths}:
            _sync_folder(folder)
    except OSError as error:
        raise CorpusError(error.filename or paths[0], f"cannot be written ({error.strerror})") from None
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


class PairWriter:
    """Writes pairs to two facing text files, or to one as TSV.

    A line end inside a sentence (TMX and PO entries hold some), or a tab inside TSV, would break the file: it is
    written as a space, and counted.
    """

    def __init__(self, files: Sequence[TextIO]):
        self._files = files
        self._breaking = re.compile(r"[\r\n]+" if len(files) == 2 else r"[\t\r\n]+")
        self.flattened = 0
        """Sentences that were changed in this way."""

    def write(self, pair: Pair) -> None:
        source, target = map(self._flatten, pair)
        if len(self._files) == 2:
            self._files[0].write(source + "\n")
            self._files[1].write(target + "\n")
        else:
            self._files[0].write(f"{source}\t{target}\n")

    def _flatten(self, sentence: str) -> str:
        flat = self._breaking.sub(" ", sentence)
        self.flattened += flat != sentence
        return flat


def _check_place(path: Path, force: bool) -> None:
    if path.is_dir():
        raise SettingsError(f"{path}: a folder; name a file to write")
    if path.exists() and not path.is_file():
        raise SettingsError(f"{path}: not a regular file; name another to write")
    if path.exists() and not force:
        raise SettingsError(f"{path}: exists already; add --force to write over it")
    if not path.parent.is_dir():
        raise SettingsError(f"{path}: there is no folder {path.parent}")


@contextmanager
def _draft(path: Path, draft: Path) -> Iterator[TextIO]:
    with draft.open("xb") as raw:
        with _pack(path, raw) as packed, io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text:
            yield text
        raw.flush()
        os.fsync(raw.fileno())


@contextmanager
def _pack(path: Path, raw: BinaryIO) -> Iterator[BinaryIO]:
    compression = split_suffix(path)[1]
    if compression == ".gz":
        # No time and no name inside: the same corpus gives the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
            yield cast(BinaryIO, packed)
    elif compression == ".zst":
        zstandard = require("zstandard", path, "writing .zst")
        with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as packed:
            yield packed
    else:
        yield cast(BinaryIO, _KeptOpen(raw))


class _KeptOpen(io.BufferedWriter):
    """A buffer over a file that stays open when the buffer is closed, so that the file can still be synced."""

    def __init__(self, raw: BinaryIO):
        super().__init__(cast(io.RawIOBase, raw))

    def close(self) -> None:
        self.flush()


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every system lets a folder be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
