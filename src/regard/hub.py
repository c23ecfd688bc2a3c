"""Fetch runs that others published on a model hub, when the user asks for one by its address "hf:OWNER/NAME".

Only the files of a run are fetched, and nothing of them is executed: weights are safetensors, all other files are text,
and every file is checked against its checksum. The library `huggingface_hub` does the download (extra "hub").
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

from regard.errors import RunError, SettingsError
from regard.files import atomic_folder
from regard.run import Run

ADDRESS = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
FILES = ("*.toml", "*.json", "*.jsonl", "*.tsv", "*.model", "*.safetensors", "README.md")
"""The kinds of files in a run folder. Folders, with the forms for other programs, are not fetched."""


def is_address(name: object) -> TypeGuard[str]:
    """Whether `name` is the address of a published run."""
    return isinstance(name, str) and name.startswith("hf:")


def fetch(address: str) -> Path:
    """Fetch a run into the cache of `huggingface_hub`, unless it is there already, and return its folder."""
    return _checked(_download(address), address)


def pull(address: str, out: str | Path, log: Callable[[str], None] = lambda line: None) -> Run:
    """Fetch a run into the new folder `out`. It appears only when it is complete and its checksums are correct."""
    folder = Run.refuse_existing(out)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(folder) as draft:
        _download(address, local_dir=str(draft))
        shutil.rmtree(draft / ".cache", ignore_errors=True)
        log(f"fetched {sum(path.stat().st_size for path in draft.iterdir()) / 1e6:.1f} MB")
        _checked(draft, address)
    return Run.open(folder)


def repository_name(address: str) -> str:
    """The last part of an address, for the default run folder."""
    return _parts(address)[0].rpartition("/")[2]


def _parts(address: str) -> tuple[str, str | None]:
    """The repository and the revision, or None, of an address."""
    found = ADDRESS.fullmatch(address)
    if not found or ".." in address:
        raise SettingsError(f'"{address}": not an address; write hf:OWNER/NAME or hf:OWNER/NAME@REVISION')
    return found[1], found[2]


def _download(address: str, **options: Any) -> Path:
    repository, revision = _parts(address)
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise SettingsError(f'{address}: fetching needs huggingface_hub: pip install "regard[hub]"') from None
    try:
        folder = snapshot_download(
            repository, revision=revision, allow_patterns=list(FILES), ignore_patterns=["*/*"], **options
        )
    except Exception as error:  # errors of HTTP, of the hub and of the disk have no common type
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise RunError(f"{address}: cannot be fetched ({reason}); check the name and the connection") from None
    return Path(folder)


def _checked(folder: Path, address: str) -> Path:
    """Return the folder if it is a run whose files are complete; otherwise raise an error."""
    try:
        run = Run.open(folder)
        wrong = [name for name, state in run.checksums.check_all().items() if state]
    except RunError:
        raise RunError(f"{address}: is not a run of Regard; give the address of a published run") from None
    if wrong:
        raise RunError(f"{address}: {', '.join(wrong)}: damaged or missing; fetch it again, or tell its author")
    return folder
