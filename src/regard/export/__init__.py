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
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from regard.config import Recipe
from regard.errors import SettingsError, nearest
from regard.models.transformer_settings import TransformerSettings
from regard.registry import EXPORTS, IMPORTS

if TYPE_CHECKING:
    from regard.run import Run

Log = Callable[[str], None]


class Option(NamedTuple):
    """An option of an export format."""

    choices: tuple[str, ...]
    """The values that it can have; the first is the default."""
    help: str


class ExportFormat(Protocol):
    """What a module of `EXPORTS` contains."""

    NEEDS: tuple[str, ...]
    OPTIONS: Mapping[str, Option]

    def obstacle(self, recipe: Recipe) -> str:
        """Why a run of this recipe cannot be exported, as the end of a line; empty if it can."""

    def write(self, run: Run, folder: Path, log: Log, **options: Any) -> None:
        """Write the run into `folder`."""


class ImportFormat(Protocol):
    """What a module of `IMPORTS` contains."""

    HELP: str

    def read(self, folder: Path, out: Path, log: Log) -> Run:
        """Make a run folder `out` from the model in `folder`."""


def export_format(name: str) -> ExportFormat:
    """The module of an export format."""
    return cast(ExportFormat, import_module(_module(EXPORTS, name, "export")))


def import_format(name: str) -> ImportFormat:
    """The module of an import format."""
    return cast(ImportFormat, import_module(_module(IMPORTS, name, "import")))


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


def export_run(run: Run, name: str, folder: Path, log: Log | None = None, **options: str) -> Path:
    """Export a run to a format of `EXPORTS`; returns the folder."""
    completed = complete_options(name, options)
    require_exportable(run.recipe, name, where=run.folder)
    export_format(name).write(run, folder, log or _ignore, **completed)
    return folder


def import_model(name: str, folder: Path, out: Path, log: Log | None = None) -> Run:
    """Make a run folder `out` from a model in a format of `IMPORTS`."""
    return import_format(name).read(folder, out, log or _ignore)


def transformer_settings(recipe: Recipe) -> TransformerSettings:
    """The settings of the model of a recipe for which `not_a_transformer` gave no reason."""
    assert isinstance(recipe.model, TransformerSettings)
    return recipe.model


def not_a_transformer(recipe: Recipe, program: str) -> str:
    """Why a model that is not an encoder-decoder Transformer cannot be exported; empty if it is one."""
    if isinstance(recipe.model, TransformerSettings):
        return ""
    return f'{program} takes encoder-decoder Transformers, and model.arch is "{recipe.model.arch}"'


def first_obstacle(obstacles: Mapping[str, bool]) -> str:
    """The first reason whose condition holds; empty if none does."""
    return next((reason for reason, stands in obstacles.items() if stands), "")


def _module(table: Mapping[str, str], name: str, verb: str) -> str:
    if name not in table:
        raise SettingsError(f"cannot {verb} {name}: choose from {', '.join(table)}{nearest(name, table)}")
    return table[name]


def _ignore(line: str) -> None:
    """Log nothing."""
