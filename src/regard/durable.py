"""Atomic writes: a file holds all of the new content, or what was there before."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import time
from pathlib import Path

from regard.errors import RunError, UnwritableError
from regard.system import sync_folder

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of a write that name no file: the disk or the quota is full, the file too large, the disk read-only."""
DRAFT = ".part"
"""Ending of everything that has not got its name yet. A draft starts with a dot and the name that it will get."""
ABANDONED = 60.0
"""Seconds after which a draft of a small file cannot belong to a running process any more."""


def is_stream(path: Path) -> bool:
    """Whether the path is a device, a pipe or a terminal, which is written into and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def draft_of(path: Path) -> Path:
    """An unused name beside a file or folder, to write into until the content is complete."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{DRAFT}")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it holds all of the content, or what was there before, even after a power cut."""
    draft = draft_of(path)
    try:
        try:
            with draft.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise UnwritableError(f"{path}: cannot write ({error.strerror}); what was there before is untouched") from None


def remove_drafts(folder: Path, name: str = "*", *, older_than: float = 0.0) -> None:
    """Remove files that a killed process left unfinished. Call it where no running process can write such a file.

    `name` is a pattern of the names that they would have got; `older_than` spares those written to in the last seconds.
    """
    for path in folder.glob(f".{name}.*-*{DRAFT}"):
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink() and time.time() - path.stat().st_mtime >= older_than:
                path.unlink()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"{path}: cannot read ({error.strerror})") from None


def concerns(error: OSError, *drafts: Path) -> bool:
    """Whether an error in the middle of other work came from writing one of these drafts, or into one.

    Errors that name another file do not. One that names none does if it says that no more can be written.
    """
    if error.filename is None:
        return error.errno in FULL
    failed = Path(os.fsdecode(error.filename))
    return any(failed == draft or draft in failed.parents for draft in drafts)
