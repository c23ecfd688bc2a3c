"""Export of runs to the model formats of other programs (`EXPORTS` in the registry), and import (`IMPORTS`).

An export format is a module with
    NEEDS     names of required libraries, which `pip install "regard[<format>]"` installs
    OPTIONS   its options by name; each becomes an option of `regard export` and a keyword of `write`
    KIND      the only kind of network that it can write, e.g. "word-vectors" (may be absent)
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
    """An option of an export format, e.g. the quantization: its possible values and its help text."""

    choices: tuple[str, ...]
    """The first is the default. Empty: any text, by default none. ("no", "yes"): an option without a value."""
    help: str

    @property
    def is_flag(self) -> bool:
        return self.choices == ("no", "yes")


def export_format(name: str) -> ModuleType:
    if name not in EXPORTS:
        guess = nearest(name, EXPORTS) or f"; choose from {', '.join(EXPORTS)}"
        raise SettingsError(f"no export format {name}{guess}")
    return import_module(EXPORTS[name])


def exportable(recipe: Recipe) -> dict[str, str]:
    """For each export format, why a run of this recipe cannot be exported to it; empty if it can.

    Formats for another kind of network are left out.
    """
    kind, formats = recipe.model.kind, {name: export_format(name) for name in EXPORTS}
    return {name: module.obstacle(recipe) for name, module in formats.items() if getattr(module, "KIND", kind) == kind}


def require_exportable(recipe: Recipe, name: str, *, where: str | Path = "this recipe") -> None:
    """Raise an error if a run of this recipe cannot be exported to the format `name`, or a library is missing.

    `where` is the run folder, for the error message.
    """
    module = export_format(name)
    if reason := module.obstacle(recipe):
        raise SettingsError(f"{where}: cannot be exported to {name}: {reason}")
    for library in module.NEEDS:
        if importlib.util.find_spec(library) is None:
            raise SettingsError(f'--to {name} needs {library}, which is not installed: pip install "regard[{name}]"')


def complete_options(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """All options of the format `name`: the values of `given`, which are checked, and defaults for the others."""
    known = export_format(name).OPTIONS
    for option, value in given.items():
        if option not in known:
            others = [other for other in EXPORTS if option in export_format(other).OPTIONS]
            hint = f"it is an option of {', '.join(others)}" if others else "no format has such an option"
            raise SettingsError(f"{name} has no option {option}; {hint}")
        if known[option].choices and value not in known[option].choices:
            raise SettingsError(f"{option} {value}: choose from {', '.join(known[option].choices)}")
    return {name: given.get(name, option.choices[0] if option.choices else "") for name, option in known.items()}


def folder_name(name: str, options: Mapping[str, str]) -> str:
    """Folder name of an export inside a run folder: format `name` and chosen values, e.g. ctranslate2-int8."""
    known = export_format(name).OPTIONS
    chosen = [value for key, value in options.items() if known[key].choices and not known[key].is_flag]
    return "-".join([name, *chosen])


def export_run(run: Run, name: str, folder: Path, log: Log = lambda line: None, **options: str) -> Path:
    """Export a run into `folder`, in the format `name` (a key of `EXPORTS`) with its `options`; return the folder."""
    completed = complete_options(name, options)
    require_exportable(run.recipe, name, where=run.folder)
    export_format(name).write(run, folder, log, **completed)
    return folder


def import_model(name: str, folder: Path, out: Path, log: Log = lambda line: None) -> Run:
    """Make a run folder `out` from the model in `folder`, which has the format `name` (a key of `IMPORTS`)."""
    if name not in IMPORTS:
        raise SettingsError(f"no import format {name}{nearest(name, IMPORTS)}; choose from {', '.join(IMPORTS)}")
    run: Run = import_module(IMPORTS[name]).read(folder, out, log)
    return run


def transformer_settings(recipe: Recipe) -> TransformerSettings:
    """The model settings of a recipe; the caller has checked that the model is an encoder-decoder Transformer."""
    assert isinstance(recipe.model, TransformerSettings)
    return recipe.model


def transformer_obstacle(recipe: Recipe, program: str, no_window: str) -> str:
    """Why `program` cannot run the model of this recipe; empty if it can.

    `no_window` is the reason that is given if the model has local attention (model.attention_window > 0).
    """
    if not isinstance(recipe.model, TransformerSettings):
        return f'{program} takes encoder-decoder Transformers, and model.arch is "{recipe.model.arch}"'
    if recipe.pictures.images:
        return f"its encoder reads pictures, and {program} takes encoders that read tokens"
    if recipe.model.experts:
        return f"model.experts = {recipe.model.experts}; {program} has no mixture of experts"
    window = recipe.model.attention_window
    return f"model.attention_window = {window}; {no_window}" if window > 0 else ""


# ---------------------------------------------------------------------------------------------------------------------
# The folder of an export


@contextmanager
def export_folder(run: Run, folder: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """Context manager: yields a temporary folder, which becomes `folder` at the end and replaces an earlier export.

    `facts`, a fingerprint of the run and the checksums of the files are written to its file MARK (export.json).
    """
    refuse_taken(folder)
    if folder.is_symlink() and folder.parent.resolve() == run.folder.resolve():
        # Runs may come from other people: a link inside a run is not followed, a link that the user names is.
        raise RunError(f"{folder}: is a link inside the run folder; remove it, or choose another folder with --out")
    folder = folder.resolve()  # a link stays; its target is replaced
    with atomic_folder(folder) as draft:
        yield draft
        files = {str(path.relative_to(draft)): file_sha256(path) for path in sorted(draft.rglob("*")) if path.is_file()}
        mark = {"regard": __version__, **facts, "fingerprint": fingerprint(run), "sha256": files}
        write_json(draft / MARK, mark)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def refuse_taken(folder: Path) -> None:
    """Raise an error if `folder` exists and is neither an earlier export nor an empty folder."""
    if folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir())):
        return
    if folder.exists():
        raise RunError(f"{folder}: exists and is not an earlier export; choose another folder with --out")


def read_mark(folder: Path) -> dict[str, Any]:
    """The content of the file MARK (export.json) in an export; empty if the file is missing or damaged."""
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def fingerprint(run: Run) -> str:
    """A hash of the weights and the model settings of a run, which shows whether an export was made from this run."""
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
    """Context manager that lets only one process at a time write exports into the run folder.

    It first removes the incomplete exports of killed processes.
    """
    with one_at_a_time(run.folder / LOCK):
        for name in EXPORTS:
            remove_drafts(run.folder, f"{name}*", folders=True)
        yield
