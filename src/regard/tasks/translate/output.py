"""Output of `regard translate`: files that can be resumed after an interruption, and translated documents."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.documents import Document
from regard.errors import CorpusError, SettingsError
from regard.files import chunks, is_stream, write_atomically
from regard.system import sync_folder
from regard.tasks.translate.translation import Translation

CHUNK = 2000
"""Lines translated together: many, so that batches have similar lengths, but so few that results appear soon."""


def chunks_as_they_come(lines: Iterable[str], size: int = CHUNK, delay: float = 0.05) -> Iterator[list[str]]:
    """Yield the lines of a pipe in lists: those that arrive within `delay` seconds after the first, at most `size`."""
    waiting: queue.Queue[tuple[float, str | BaseException | None]] = queue.Queue(maxsize=4 * size)

    def read() -> None:
        end = None
        try:
            for line in lines:
                waiting.put((time.monotonic(), line))
        except BaseException as error:  # raised again below
            end = error
        waiting.put((time.monotonic(), end))

    threading.Thread(target=read, daemon=True).start()
    item: str | BaseException | None = ""
    while item is not None:
        chunk: list[str] = []
        came, item = waiting.get()
        while isinstance(item, str):
            chunk.append(item)
            if len(chunk) == size:
                break
            try:
                _, item = waiting.get(timeout=max(0.0, came + delay - time.monotonic()))
            except queue.Empty:
                break
        if chunk:
            yield chunk
        if isinstance(item, BaseException):
            raise item


def translate_document(
    document: Document, translate: Callable[[list[str]], list[Translation]], advance: Callable[[int], None]
) -> tuple[str | bytes, list[str]]:
    """Translate the texts of a document. Texts that occur several times are translated once.

    Returns the translated document, and a list of the addresses, placeholders and numbers that the translations of the
    model lack. Addresses and placeholders have been restored in the document; numbers have not. `advance` is called
    with the number of texts after each chunk, to show progress.
    """
    translations: dict[str, Translation] = {}
    for chunk in chunks(dict.fromkeys(document.texts), CHUNK):
        translations |= zip(chunk, translate(chunk), strict=True)
        advance(len(chunk))
    found = [translations[text] for text in document.texts]
    lost = [piece for pieces in document.lost(found) for piece in pieces]
    return document.rebuild(found), lost


class TranslationFile(AbstractContextManager["TranslationFile"]):
    """An output file of translations, written as FILE.part and renamed when complete.

    With `resume`, an interrupted file is continued. Its `job` (input, runs and settings) must be the same.
    """

    def __init__(self, path: Path, job: Mapping[str, Any], *, resume: bool):
        self.is_stream = is_stream(path)
        self.path = path if self.is_stream else path.resolve()  # a symbolic link is kept; its target is replaced
        self.part = path if self.is_stream else self.path.with_name(self.path.name + ".part")
        self._note = self.path.with_name(self.path.name + ".part.json")
        self._job, self._digest = dict(job), _hash(())
        self._read: tuple[int, str] = (0, "")
        self.done = 0
        if self.path.is_dir():
            raise CorpusError(str(path), "is a folder; give the name of a file")
        try:
            if not self.is_stream:
                self.done = self._begin(resume)
            self._file = self.part.open("a", encoding="utf-8")
        except OSError as error:
            raise CorpusError(str(path), f"cannot be written ({error.strerror}); choose another file") from None

    def _begin(self, resume: bool) -> int:
        """Create FILE.part.json or, to resume, check it. Returns the number of lines that are already in FILE.part.

        An incomplete last line of FILE.part is removed.
        """
        if not self.part.exists():
            if resume and self.path.exists():
                raise SettingsError(f"{self.path}: the file is complete; leave out --resume to translate again")
            write_atomically(self._note, json.dumps(self._job).encode())
            return 0
        if not resume:
            raise SettingsError(
                f"{self.part}: left by an interrupted translation; continue it with --resume, or remove the file"
            )
        try:
            noted = json.loads(self._note.read_text(encoding="utf-8"))
        except FileNotFoundError:
            noted = {}
        except ValueError:
            raise SettingsError(f"{self._note}: damaged; remove it and {self.part}, and translate again") from None
        count, digest = noted.pop("read", (0, ""))
        self._read = (int(count), str(digest))
        if noted != json.loads(json.dumps(self._job)):
            raise SettingsError(
                f"{self.part}: was made with another file, run or setting: cannot resume; remove it to start again"
            )
        content = self.part.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        with self.part.open("r+b") as file:
            file.truncate(len(whole))
        return whole.count(b"\n")

    def rest_of_pipe(self, lines: Iterable[str]) -> Iterator[str]:
        """Return the lines that are not yet translated, when a translation of standard input is resumed.

        Raises an error if the lines before them are not those of the interrupted translation.
        """
        lines = iter(lines)
        count, digest = self._read
        again = list(islice(lines, max(count, self.done)))
        if count and _hash(again[:count]).hexdigest() != digest:
            raise SettingsError(f"{self.part}: was made from another input text; remove this file to start again")
        self._digest, self._read = _hash(again[: self.done]), (self.done, "")
        return chain(again[self.done :], lines)

    def remember(self, lines: Sequence[str]) -> None:
        """Add lines of standard input to the stored checksum, after their translations have been written."""
        self._digest = _hash(lines, self._digest)
        self._read = (self._read[0] + len(lines), self._digest.hexdigest())
        if not self.is_stream:
            write_atomically(self._note, json.dumps(self._job | {"read": self._read}).encode())

    def write(self, lines: Iterable[str]) -> None:
        try:
            self._file.write("".join(line + "\n" for line in lines))
            self._file.flush()
        except OSError as error:
            problem = f"cannot write ({error.strerror}); continue later with --resume"
            raise CorpusError(str(self.part), problem) from None

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def finish(self) -> None:
        """Close the complete file and give it its final name."""
        if not self.is_stream:
            os.fsync(self._file.fileno())
        self._file.close()
        if not self.is_stream:
            self.part.replace(self.path)
            self._note.unlink(missing_ok=True)
            sync_folder(self.path.parent)


def _hash(lines: Iterable[str], before: hashlib._Hash | None = None) -> hashlib._Hash:
    found = before or hashlib.sha256()
    for line in lines:
        found.update(line.encode(errors="surrogatepass") + b"\n")
    return found
