"""Model formats of other programs: runs written in them (`EXPORTS` of the registry), models read from them (`IMPORTS`).

An export format is a module with
    NEEDS     names of the libraries it needs, which `pip install "regard[<format>]"` installs
    OPTIONS   its options by name; each becomes an option of `regard export` and a keyword of `write`
    obstacle(recipe) -> str                   why a run of this recipe cannot be exported; empty if it can
    write(run, folder, log, **options)        write the run into `folder`; `log` receives lines for the user
An import format is a module with
    HELP      what the folder of a model must hold
    read(folder, out, log) -> Run             make a run folder `out` from a model
All of these but `write` and `read` work without torch: a module imports torch inside its functions.

The folder of an export (`export_folder`) is written completely or not at all, and is marked as an export.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from regard import __version__
from regard.config import Recipe
from regard.errors import RunError, SettingsError, nearest
from regard.files import atomic_folder, file_sha256, remove_drafts
from regard.models.transformer_settings import TransformerSettings
from regard.registry import EXPORTS, IMPORTS
from regard.run import WEIGHTS, Run
from regard.system import one_at_a_time

Log = Callable[[str], None]

MARK = "export.json"
"""File with the format and the weights' fingerprint. A folder that contains it may be replaced by another export."""
LOCK = ".convert.lock"
"""File in a run folder, locked by the process that writes an export there."""


class Option(NamedTuple):
    """An option of an export format."""

    choices: tuple[str, ...]
    """The values that it can have; the first is the default."""
    help: str


def export_format(name: str) -> ModuleType:
    """The module of an export format."""
    if name not in EXPORTS:
        raise SettingsError(f"cannot export {name}: choose from {', '.join(EXPORTS)}{nearest(name, EXPORTS)}")
    return import_module(EXPORTS[name])


def exportable(recipe: Recipe) -> dict[str, str]:
    """For each format, why a run of this recipe cannot be exported to it; an empty string where it can."""
    return {name: export_format(name).obstacle(recipe) for name in EXPORTS}


def require_exportable(recipe: Recipe, name: str, *, where: str | Path = "this recipe") -> None:
    """Raise an error if a run of this recipe cannot be exported to the format, or a library is missing."""
    module = export_format(name)
    if reason := module.obstacle(recipe):
        raise SettingsError(f"{where}: cannot be exported to {name}: {reason}")
    for library in module.NEEDS:
        if importlib.util.find_spec(library) is None:
            raise SettingsError(f'{library} is not installed; pip install "regard[{name}]"')


def complete_options(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a format: those given, which are checked, and defaults for the others."""
    known = export_format(name).OPTIONS
    for option, value in given.items():
        if option not in known:
            others = [other for other in EXPORTS if option in export_format(other).OPTIONS]
            hint = f"it is an option of {', '.join(others)}" if others else "no format has such an option"
            raise SettingsError(f"{name} has no option {option}; {hint}")
        if value not in known[option].choices:
            raise SettingsError(f"{option} {value}: choose from {', '.join(known[option].choices)}")
    return {option: given.get(option, known[option].choices[0]) for option in known}


def folder_name(name: str, options: Mapping[str, str]) -> str:
    """The name of an export inside a run folder: the format and the values of its options."""
    return "-".join([name, *options.values()])


def export_run(run: Run, name: str, folder: Path, log: Log = lambda line: None, **options: str) -> Path:
    """Export a run to a format of `EXPORTS`; returns the folder."""
    completed = complete_options(name, options)
    require_exportable(run.recipe, name, where=run.folder)
    export_format(name).write(run, folder, log, **completed)
    return folder


def import_model(name: str, folder: Path, out: Path, log: Log = lambda line: None) -> Run:
    """Make a run folder `out` from a model in a format of `IMPORTS`."""
    if name not in IMPORTS:
        raise SettingsError(f"cannot import {name}: choose from {', '.join(IMPORTS)}{nearest(name, IMPORTS)}")
    run: Run = import_module(IMPORTS[name]).read(folder, out, log)
    return run


def transformer_settings(recipe: Recipe) -> TransformerSettings:
    """The settings of the model of a recipe for which `transformer_obstacle` gave no reason."""
    assert isinstance(recipe.model, TransformerSettings)
    return recipe.model


def transformer_obstacle(recipe: Recipe, program: str, no_window: str) -> str:
    """Why a model cannot be exported: no encoder-decoder Transformer, or local attention (`no_window` says why)."""
    if not isinstance(recipe.model, TransformerSettings):
        return f'{program} takes encoder-decoder Transformers, and model.arch is "{recipe.model.arch}"'
    window = recipe.model.attention_window
    return f"model.attention_window = {window}; {no_window}" if window > 0 else ""


# ---------------------------------------------------------------------------------------------------------------------
# The folder of an export


@contextmanager
def export_folder(run: Run, folder: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """A draft folder that becomes `folder` (free, or an earlier export) when the block ends without an error."""
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
    found = {}
    for name, digest in read_mark(folder).get("sha256", {}).items():
        there = (folder / name).is_file()
        found[name] = "missing" if not there else "" if file_sha256(folder / name) == digest else "damaged"
    return found


@contextmanager
def exporting(run: Run) -> Iterator[None]:
    """Allow one process at a time to write exports into the run folder; remove drafts of killed processes."""
    with one_at_a_time(run.folder / LOCK):
        for name in EXPORTS:
            remove_drafts(run.folder, f"{name}*", folders=True)
        yield
