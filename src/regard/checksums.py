"""checksums.json: the SHA-256 of the files in a folder, so that a damaged file is noticed before it is used.

A file without a checksum is accepted; a file with a wrong checksum is refused. While a file is being replaced, both its
old and its new checksum are stored, so a process that is killed at any moment leaves a folder that can be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.errors import RunError
from regard.files import file_sha256, write_atomically
from regard.system import one_at_a_time

CHECKSUMS = "checksums.json"


class Checksums:
    """Writes the files of one folder together with their checksums, and checks a file before it is used."""

    def __init__(self, folder: Path):
        self.folder = folder

    def read(self) -> dict[str, list[str]]:
        """The stored checksums of each file, by file name. A file that is being replaced has two: old and new."""
        path = self.folder / CHECKSUMS
        try:
            table = json.loads(path.read_text(encoding="utf-8"))["sha256"]
            return {str(name): [str(one) for one in digests] for name, digests in table.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            remedy = "take this file from a copy of the run, or delete it to use the run unchecked"
            raise RunError(f"{path}: cannot read the checksums ({error}); {remedy}") from None

    def check(self, name: str) -> str:
        """Return the SHA-256 of a file, or "" if the file is missing; raise an error if it differs from the stored one.

        If file and checksum do not match, both are read again before the error is raised: another process may have
        replaced the file in between. A file without a stored checksum is accepted.
        """
        path = self.folder / name
        while path.is_file():
            expected, found = self.read().get(name), file_sha256(path)
            if not expected or found in expected:
                return found
            if expected == self.read().get(name) and found == file_sha256(path):
                raise RunError(
                    f"{path}: damaged or changed (its SHA-256 is not the one in {CHECKSUMS}); take it from a copy of"
                    f' the run; if you changed it yourself, use "regard verify {self.folder} --accept"'
                )
        return ""

    def check_all(self) -> dict[str, str]:
        """The state of each file that has a checksum: "damaged", "missing", or "" for a correct file."""
        found = {}
        for name in self.read():
            try:
                found[name] = "" if self.check(name) else "missing"
            except RunError:
                found[name] = "damaged"
        return found

    def accept(self, names: Iterable[str]) -> None:
        """Store the current checksums of the files `names`, and of all files that already have a checksum."""
        for name in {*self.read(), *names}:
            path = self.folder / name
            self._store(name, [file_sha256(path)] if path.is_file() else [])

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically, and store its checksum."""
        before, digest = self.read().get(name, []), hashlib.sha256(content).hexdigest()
        if before:
            self._store(name, [*before, digest])
        try:
            write_atomically(self.folder / name, content)
        except RunError:
            with contextlib.suppress(RunError):
                self._store(name, before)
            raise
        self._store(name, [digest])

    def _store(self, name: str, digests: Sequence[str]) -> None:
        """Replace the checksums of a file by `digests` (empty: no checksums), while other processes are locked out."""
        with one_at_a_time(self.folder / ".checksums.lock"):
            known = self.read() | {name: list(digests)}
            table = {"sha256": {name: digests for name, digests in sorted(known.items()) if digests}}
            write_atomically(self.folder / CHECKSUMS, (json.dumps(table, indent=1) + "\n").encode())
