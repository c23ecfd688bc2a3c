"""The folder that an export writes: whole or not there at all, and marked as an export."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard import __version__
from regard.errors import RunError, UnwritableError
from regard.run import Run
from regard.system import rename_folder, sync_folder

MARK = "export.json"
"""What was exported, and from which weights. A folder that holds it may be replaced by another export."""


@contextlib.contextmanager
def export_folder(run: Run, folder: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """A folder to write into that takes its name when the block ends well; an error removes it.

    An earlier export of that name is replaced; anything else that stands there is refused. Of several that
    are written at once, the last one stays.
    """
    refuse_taken(folder)
    folder = folder.resolve()  # a link stays, and what it leads to is replaced
    draft = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        draft.mkdir(parents=True)
        yield draft
        mark = {"regard": __version__, **facts, "fingerprint": fingerprint(run)}
        (draft / MARK).write_text(json.dumps(mark, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        for path in draft.iterdir():
            _sync(path)
        while not _take_name(draft, folder):
            pass
        sync_folder(folder.parent)
    except OSError as error:
        raise UnwritableError(f"{folder}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _take_name(draft: Path, folder: Path) -> bool:
    """Put the draft in the place of what stands there; False when another came in between."""
    aside = draft.with_suffix(".old")
    with contextlib.suppress(FileNotFoundError):
        rename_folder(folder, aside)
    try:
        os.rename(draft, folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.rename(aside, folder)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return True


def refuse_taken(folder: Path) -> None:
    """Say so where something other than an earlier export stands."""
    if folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir())):
        return
    if folder.exists():
        raise RunError(f"{folder}: exists already and is no earlier export; choose another --out")


def read_mark(folder: Path) -> dict[str, Any]:
    """What an export says of itself; empty if there is none."""
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def fingerprint(run: Run) -> str:
    """Of the weights and what they are the weights of: by this a stale export is known."""
    with run.require_weights().open("rb") as file:
        found = hashlib.file_digest(file, "sha256")
    found.update(repr(run.recipe.model).encode())
    return found.hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
