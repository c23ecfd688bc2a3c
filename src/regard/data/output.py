"""Writing corpora: all or nothing. A file appears under its name when it is whole, and never half."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from regard.data.files import split_suffix, zstd
from regard.data.formats import Pair
from regard.durable import concerns, draft_of
from regard.errors import CorpusError, SettingsError
from regard.system import sync_folder


@contextmanager
def atomic_files(paths: Sequence[Path], *, force: bool = False) -> Iterator[list[TextIO]]:
    """Open text files (.gz and .zst are packed) that take their names, replacing what was there, when the block ends.

    Until then they lie beside their place under another name; an error removes them. What exists is refused unless
    `force` says otherwise.
    """
    refuse_existing(paths, force=force)
    for path in paths:
        if not path.parent.is_dir():
            raise SettingsError(f"{path}: there is no folder {path.parent}")
    drafts, inside = list(map(draft_of, paths)), False
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(_draft(path, draft)) for path, draft in zip(paths, drafts, strict=True)]
            inside = True
            yield files
            inside = False
        for path, draft in zip(paths, drafts, strict=True):
            os.replace(draft, path)
        for folder in {path.parent for path in paths}:
            sync_folder(folder)
    except OSError as error:
        if inside and not concerns(error, *drafts):
            raise
        raise CorpusError(
            error.filename or ", ".join(map(str, paths)), f"cannot be written ({error.strerror})"
        ) from None
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def refuse_existing(paths: Sequence[Path], *, force: bool) -> None:
    """Say so where a place to write to is taken. With `force` only what is no plain file is in the way."""
    for path in paths:
        if path.is_dir():
            raise SettingsError(f"{path}: a folder; name a file to write")
        if path.exists() and not path.is_file():
            raise SettingsError(f"{path}: not a plain file; name another to write")
        if path.exists() and not force:
            raise SettingsError(f"{path}: exists already; add --force to write over it")


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


@contextmanager
def _draft(path: Path, draft: Path) -> Iterator[TextIO]:
    with draft.open("xb") as raw:
        with _pack(path, raw) as packed:
            text = io.TextIOWrapper(packed, encoding="utf-8", newline="\n")
            try:
                yield text
            finally:
                text.detach()  # closing it would close the file, which has yet to be synced
        raw.flush()
        os.fsync(raw.fileno())


def _pack(path: Path, raw: BinaryIO) -> AbstractContextManager[BinaryIO]:
    compression = split_suffix(path)[1]
    if compression == ".gz":
        # No time and no name inside: the same corpus gives the same bytes.
        return cast(AbstractContextManager[BinaryIO], gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
    if compression == ".zst":
        return cast(AbstractContextManager[BinaryIO], zstd(path, "writing .zst").ZstdFile(raw, "w"))
    return nullcontext(raw)
