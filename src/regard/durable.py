"""Writing so that nothing is ever half there: all of the new content under its name, or what was there before."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from regard.errors import RunError
from regard.system import sync_folder


def is_stream(path: Path) -> bool:
    """Whether it is there and no file: a device, a pipe, a terminal. Such a thing is written into, never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write_atomically(path: Path, content: bytes) -> None:
    """All of the content under this name, or what was there before; never a part of it, even after a power cut."""
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(draft, 0o644)  # mkstemp makes files that only their owner can read
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise RunError(f"{path}: cannot write ({error.strerror}); what was there before is untouched") from None
