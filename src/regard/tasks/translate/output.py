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
    """Yield the lines of a pipe in lists of at most `size`. No line waits longer than `delay` seconds."""
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
    """Translate a document; equal texts are translated once. `advance` is called with the number of new translations.

    Returns the new document, and the addresses, placeholders and numbers that are missing in translations. In the
    document, missing addresses and placeholders have been restored; numbers have not.
    """
    translations: dict[str, Translation] = {}
    for chunk in chunks(dict.fromkeys(document.texts), CHUNK):
        translations |= zip(chunk, translate(chunk), strict=True)
        advance(len(chunk))
    found = [translations[text] for text in document.texts]
    lost = [piece for pieces in document.lost(found) for piece in pieces]
    return document.rebuild(found), lost


class TranslationFile(AbstractContextManager["TranslationFile"]):
    """An output file that is written as FILE.part and renamed when complete. An interrupted file can be resumed.

    `job` describes the input and the settings. A partial file of another job is not resumed.
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
            raise CorpusError(str(path), "is a folder; name a file")
        try:
            if not self.is_stream:
                self.done = self._begin(resume)
            self._file = self.part.open("a", encoding="utf-8")
        except OSError as error:
            raise CorpusError(str(path), f"cannot be written ({error.strerror})") from None

    def _begin(self, resume: bool) -> int:
        """Return the number of complete lines in the partial file, after removing an incomplete last line."""
        if not self.part.exists():
            if resume and self.path.exists():
                raise SettingsError(f"{self.path}: is complete; leave out --resume to translate again")
            write_atomically(self._note, json.dumps(self._job).encode())
            return 0
        if not resume:
            raise SettingsError(f"{self.part}: from an interrupted translation; add --resume, or remove this file")
        try:
            noted = json.loads(self._note.read_text(encoding="utf-8"))
        except FileNotFoundError:
            noted = {}
        except ValueError:
            raise SettingsError(f"{self._note}: damaged; remove it and {self.part}, and start again") from None
        count, digest = noted.pop("read", (0, ""))
        self._read = (int(count), str(digest))
        if noted != json.loads(json.dumps(self._job)):
            raise SettingsError(f"{self.part}: was made with another file, run or setting; remove it to start again")
        content = self.part.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        with self.part.open("r+b") as file:
            file.truncate(len(whole))
        return whole.count(b"\n")

    def rest_of_pipe(self, lines: Iterable[str]) -> Iterator[str]:
        """Return the lines of a pipe that are not yet translated. Raises an error if earlier lines have changed."""
        lines = iter(lines)
        count, digest = self._read
        again = list(islice(lines, max(count, self.done)))
        if count and _hash(again[:count]).hexdigest() != digest:
            raise SettingsError(f"{self.part}: was made from another text; remove this file and start again")
        self._digest, self._read = _hash(again[: self.done]), (self.done, "")
        return chain(again[self.done :], lines)

    def remember(self, lines: Sequence[str]) -> None:
        """Store a checksum of these lines of a pipe, whose translations have been written."""
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
