"""The folder of an export: written completely or not at all, and marked as an export."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard import __version__
from regard.errors import RunError
from regard.files import atomic_folder, file_sha256, remove_drafts
from regard.registry import EXPORTS
from regard.run import WEIGHTS, Run
from regard.system import one_at_a_time

MARK = "export.json"
"""File with the format and the weights' fingerprint. A folder that contains it may be replaced by another export."""
LOCK = ".convert.lock"
"""File in a run folder, locked by the process that writes an export there."""


@contextlib.contextmanager
def export_folder(run: Run, folder: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """A draft folder that gets its final name when the block ends without an error; an error removes it.

    An earlier export of that name is replaced; anything else there is an error. If several processes write one export
    at once, the last one stays.
    """
    refuse_taken(folder)
    if folder.is_symlink() and folder.parent.resolve() == run.folder.resolve():
        # The maker of the run decides where a link in it leads; only a link that the user names is followed.
        raise RunError(f"{folder}: is a link, whose target may not be an export; remove it, or use --out")
    folder = folder.resolve()  # a link stays; its target is replaced
    with atomic_folder(folder) as draft:
        yield draft
        files = {str(path.relative_to(draft)): file_sha256(path) for path in sorted(draft.rglob("*")) if path.is_file()}
        mark = {"regard": __version__, **facts, "fingerprint": fingerprint(run), "sha256": files}
        (draft / MARK).write_text(json.dumps(mark, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def refuse_taken(folder: Path) -> None:
    """Raise an error if the path exists and is not an earlier export."""
    if folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir())):
        return
    if folder.exists():
        raise RunError(f"{folder}: exists and is not an earlier export; choose another --out")


def read_mark(folder: Path) -> dict[str, Any]:
    """The mark of an export; empty if there is none."""
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def fingerprint(run: Run) -> str:
    """A hash of the weights and the architecture. An export with another fingerprint is of other weights."""
    run.require_weights()
    return hashlib.sha256(f"{run.checksums.check(WEIGHTS)} {run.recipe.model!r}".encode()).hexdigest()


def check_export(folder: Path) -> dict[str, str]:
    """The problem of each file of an export ("missing" or "damaged"), by name; empty if it has none."""
    expected = read_mark(folder).get("sha256", {})
    found = {}
    for name, digest in expected.items():
        there = (folder / name).is_file()
        found[name] = "missing" if not there else "" if file_sha256(folder / name) == digest else "damaged"
    return found


@contextlib.contextmanager
def exporting(run: Run) -> Iterator[None]:
    """Allow one process at a time to write exports into the run folder; remove drafts of killed processes."""
    with one_at_a_time(run.folder / LOCK):
        for name in EXPORTS:
            remove_drafts(run.folder, f"{name}*", folders=True)
        yield
