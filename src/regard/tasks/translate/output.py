"""Lines in, answers out, in order: from a file as fast as it goes, from a pipe as the lines come."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.errors import CorpusError, SettingsError
from regard.files import is_stream, write_atomically
from regard.system import sync_folder

CHUNK = 2000
"""Lines translated together: enough to sort by length, few enough to be told of soon."""
DELAY = 0.05
"""Seconds that a line from a pipe waits for others to be translated with it."""


def chunks(lines: Iterable[str], size: int = CHUNK) -> Iterator[list[str]]:
    """All lines, so many at a time."""
    lines = iter(lines)
    while chunk := list(islice(lines, size)):
        yield chunk


def chunks_as_they_come(lines: Iterable[str], size: int = CHUNK, delay: float = DELAY) -> Iterator[list[str]]:
    """All lines; none waits longer than `delay` for those after it. What goes wrong while reading is raised here."""
    waiting: queue.Queue[tuple[float, str | BaseException | None]] = queue.Queue(maxsize=4 * size)

    def read() -> None:
        end = None
        try:
            for line in lines:
                waiting.put((time.monotonic(), line))
        except BaseException as error:  # whoever waits would wait for ever
            end = error
        waiting.put((time.monotonic(), end))

    threading.Thread(target=read, daemon=True).start()
    more = True
    while more:
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
        more = item is not None


class TranslationFile:
    """A file that is there only when it is whole. Until then its lines grow in FILE.part, from where it can go on."""

    def __init__(self, path: Path, job: Mapping[str, Any], *, resume: bool):
        """`job` says what is being translated and how: a half-made file of another job is not gone on with."""
        self.is_stream = is_stream(path)
        self.path = path if self.is_stream else path.resolve()  # a link stays, and what it leads to is replaced
        self.part = path if self.is_stream else self.path.with_name(self.path.name + ".part")
        self._note = self.path.with_name(self.path.name + ".part.json")
        self._job, self._digest = dict(job), _hash(())
        self._read: tuple[int, str] = (0, "")
        self.done = 0
        if self.path.is_dir():
            raise CorpusError(str(path), "is a folder; name a file")
        try:
            if not self.is_stream:
                self.done = self._begin(job, resume)
            self._file = self.part.open("a", encoding="utf-8")
        except OSError as error:
            raise CorpusError(str(path), f"cannot write ({error.strerror})") from None

    def _begin(self, job: Mapping[str, Any], resume: bool) -> int:
        """Lines that are done already; a last one that was cut off is taken back."""
        if not self.part.exists():
            if resume and self.path.exists():
                raise SettingsError(
                    f"{self.path}: is whole, nothing is left to resume; without --resume it is made anew"
                )
            with self._note.open("w", encoding="utf-8") as note:
                json.dump(job, note)
                note.flush()
                os.fsync(note.fileno())
            return 0
        if not resume:
            raise SettingsError(f"{self.part}: an earlier translation was interrupted; --resume goes on, or remove it")
        noted = self._noted()
        if noted is not None:
            count, digest = noted.pop("read", (0, ""))
            self._read = (int(count), str(digest))
        if noted != json.loads(json.dumps(job)):
            raise SettingsError(f"{self.part}: was made from another file, run or setting; remove it and start anew")
        content = self.part.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        with self.part.open("r+b") as file:
            file.truncate(len(whole))
        return whole.count(b"\n")

    def rest_of_pipe(self, lines: Iterable[str]) -> Iterator[str]:
        """What is still to be done of a pipe, which must begin as the one before did: only its lines can tell."""
        lines = iter(lines)
        count, digest = self._read
        again = list(islice(lines, max(count, self.done)))
        if count and _hash(again[:count]).hexdigest() != digest:
            raise SettingsError(f"{self.part}: was made from another text; remove it and start anew")
        self._digest, self._read = _hash(again[: self.done]), (self.done, "")
        return chain(again[self.done :], lines)

    def remember(self, lines: Sequence[str]) -> None:
        """Note that these lines of a pipe have been read, and what was made of them written."""
        self._digest = _hash(lines, self._digest)
        self._read = (self._read[0] + len(lines), self._digest.hexdigest())
        if not self.is_stream:
            write_atomically(self._note, json.dumps(self._job | {"read": self._read}).encode())

    def _noted(self) -> Any:
        """The job of a half-made file; None if nothing is noted of it."""
        try:
            return json.loads(self._note.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            raise SettingsError(f"{self._note}: damaged; remove it and {self.part}, and start anew") from None

    def write(self, lines: Iterable[str]) -> None:
        """Add lines."""
        try:
            self._file.write("".join(line + "\n" for line in lines))
            self._file.flush()
        except OSError as error:
            raise CorpusError(str(self.part), f"cannot write ({error.strerror}); --resume goes on later") from None

    def __enter__(self) -> TranslationFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def finish(self) -> None:
        """The file is whole: give it its name."""
        if self.is_stream:
            self._file.close()
            return
        os.fsync(self._file.fileno())
        self._file.close()
        self.part.replace(self.path)
        self._note.unlink(missing_ok=True)
        sync_folder(self.path.parent)


def _hash(lines: Iterable[str], before: hashlib._Hash | None = None) -> hashlib._Hash:
    """Of lines, and those before them."""
    found = before or hashlib.sha256()
    for line in lines:
        found.update(line.encode(errors="surrogatepass") + b"\n")
    return found
