"""Export of runs to the model formats of other programs (`EXPORTS` in the registry), and import (`IMPORTS`).

An export format is a module with
    NEEDS     names of required libraries, which `pip install "regard[<format>]"` installs
    OPTIONS   its options by name; each becomes an option of `regard export` and a keyword of `write`
    obstacle(recipe) -> str                   why a run of this recipe cannot be exported; empty if it can
    write(run, folder, log, **options)        write the run into `folder`; `log` receives lines for the user
An import format is a module with
    HELP      the files that the folder of a model must contain
    read(folder, out, log) -> Run             make a run folder `out` from the model in `folder`
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
"""File with the format and the weights' fingerprint. A folder with this file may be replaced by another export."""
LOCK = ".convert.lock"  # file in a run folder, locked by the process that writes an export there


class Option(NamedTuple):
    """An option of an export format."""

    choices: tuple[str, ...]  # the first is the default
    help: str


def export_format(name: str) -> ModuleType:
    if name not in EXPORTS:
        raise SettingsError(f"cannot export {name}: choose from {', '.join(EXPORTS)}{nearest(name, EXPORTS)}")
    return import_module(EXPORTS[name])


def exportable(recipe: Recipe) -> dict[str, str]:
    """For each format, why a run of this recipe cannot be exported to it; an empty string where it can."""
    return {name: export_format(name).obstacle(recipe) for name in EXPORTS}


def require_exportable(recipe: Recipe, name: str, *, where: str | Path = "this recipe") -> None:
    """Raise an error if a run of this recipe cannot be exported to the format `name`, or a library is missing."""
    module = export_format(name)
    if reason := module.obstacle(recipe):
        raise SettingsError(f"{where}: cannot be exported to {name}: {reason}")
    for library in module.NEEDS:
        if importlib.util.find_spec(library) is None:
            raise SettingsError(f'{library} is not installed; pip install "regard[{name}]"')


def complete_options(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """The options of the format `name`: `given` values, which are checked, and defaults for the other options."""
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
    """The name of an export inside a run folder: the format and the values of its options, e.g. ctranslate2-int8."""
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
    """The model settings of a recipe whose model is known to be an encoder-decoder Transformer."""
    assert isinstance(recipe.model, TransformerSettings)
    return recipe.model


def transformer_obstacle(recipe: Recipe, program: str, no_window: str) -> str:
    """Why `program` cannot run the model; empty if it can. `no_window`: the reason if the model has local attention."""
    if not isinstance(recipe.model, TransformerSettings):
        return f'{program} takes encoder-decoder Transformers, and model.arch is "{recipe.model.arch}"'
    window = recipe.model.attention_window
    return f"model.attention_window = {window}; {no_window}" if window > 0 else ""


# ---------------------------------------------------------------------------------------------------------------------
# The folder of an export


@contextmanager
def export_folder(run: Run, folder: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """Yield a draft folder, which is renamed to `folder` after the block and replaces an earlier export there.

    `facts` and the checksums of the files are written to the file MARK.
    """
    refuse_taken(folder)
    if folder.is_symlink() and folder.parent.resolve() == run.folder.resolve():
        # Runs may come from other people: a link inside a run is not followed, a link that the user names is.
        raise RunError(f"{folder}: is a link inside the run folder; remove the link, or choose another folder by --out")
    folder = folder.resolve()  # a link stays; its target is replaced
    with atomic_folder(folder) as draft:
        yield draft
        files = {str(path.relative_to(draft)): file_sha256(path) for path in sorted(draft.rglob("*")) if path.is_file()}
        mark = {"regard": __version__, **facts, "fingerprint": fingerprint(run), "sha256": files}
        write_json(draft / MARK, mark)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def refuse_taken(folder: Path) -> None:
    """Raise an error if the path exists and is neither an earlier export nor an empty folder."""
    if folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir())):
        return
    if folder.exists():
        raise RunError(f"{folder}: exists and is not an earlier export; choose another --out")


def read_mark(folder: Path) -> dict[str, Any]:
    """The content of the file MARK of an export; empty if the file is missing or damaged."""
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def fingerprint(run: Run) -> str:
    """A hash of weights and architecture. An export with another fingerprint was made from other weights."""
    run.require_weights()
    return hashlib.sha256(f"{run.checksums.check(WEIGHTS)} {run.recipe.model!r}".encode()).hexdigest()


def check_export(folder: Path) -> dict[str, str]:
    """For each file of an export, by name: "missing", "damaged", or an empty string if it is correct."""
    found = {}
    for name, digest in read_mark(folder).get("sha256", {}).items():
        there = (folder / name).is_file()
        found[name] = "missing" if not there else "" if file_sha256(folder / name) == digest else "damaged"
    return found


@contextmanager
def exporting(run: Run) -> Iterator[None]:
    """Let only one process at a time write exports into the run folder; first remove drafts of killed processes."""
    with one_at_a_time(run.folder / LOCK):
        for name in EXPORTS:
            remove_drafts(run.folder, f"{name}*", folders=True)
        yield
