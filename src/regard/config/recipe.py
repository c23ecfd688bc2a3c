"""Recipes: TOML tables with the settings that differ from the defaults, read into the settings classes.

A recipe has the sections data, tokenizer, model and train, the section of its own task, [search] if the task writes
text, and [pictures] if it reads pictures. An unknown name or a value of the wrong type is an error; the message
suggests the nearest valid name. The recipe.toml of a run also has `format` and `[sizes]`, which `run.py` writes.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import textwrap
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from regard.config import DEFAULT_ARCH, DataSettings, ModelSettings, PictureSettings, Recipe, settings_of
from regard.errors import SettingsError, nearest
from regard.registry import TASKS

if TYPE_CHECKING:
    from regard.tasks import Task

FORMAT = 1
"""Version of recipe.toml in a run folder. Newer versions are an error; MIGRATIONS converts older versions."""
OPTIONAL_SECTIONS = {"pictures": "reads_pictures", "search": "writes"}
"""Sections that only some tasks have, and the field of `Task` that tells it."""
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each older format, a function that converts the tables of recipe.toml to the next format."""


def read_table(path: str | Path) -> dict[str, Any]:
    """Read a recipe file as {section: {setting: value}}. Older formats are converted; settings are not checked yet."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise SettingsError(f"{path}: cannot read the recipe ({reason}); check the file") from None
    except tomllib.TOMLDecodeError as error:
        hint = "" if str(path).endswith(".toml") else " (a recipe is a TOML file; give text files with --source)"
        raise SettingsError(f"{path}: not valid TOML: {error}{hint}") from None
    version = table.get("format", FORMAT)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise SettingsError(f"{path}: format must be a whole number of at least 1, not {version!r}; correct this line")
    if version > FORMAT:
        known = f"this version of Regard reads formats up to {FORMAT}"
        raise SettingsError(f"{path}: has format {version}, written by a newer version; {known}: update Regard")
    for old in range(version, FORMAT):
        table = MIGRATIONS[old](table)
    return table


def with_overrides(table: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """A copy of the recipe `table`, changed by overrides of the form `section.key=value`, e.g. "train.seed=2"."""
    merged = join_tables(table, {})
    for override in overrides:
        name, sign, raw = override.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (sign and dot and section and key):
            raise SettingsError(f'--set {override}: write it as section.key=value, e.g. "--set train.seed=2"')
        values = merged.setdefault(section, {})
        if not isinstance(values, dict):
            raise SettingsError(
                f"--set {override}: in the recipe, {section} is a value, not a section; correct the recipe"
            )
        try:
            values[key] = tomllib.loads(f"value = {raw}")["value"]
        except tomllib.TOMLDecodeError:
            values[key] = raw.strip()  # a bare word is a string
    return merged


def make_recipe(table: Mapping[str, Any], *, where: str = "settings") -> Recipe:
    """Build a recipe from {section: {setting: value}}; checks names, types and ranges.

    Missing settings get the defaults of the task, else of their settings class. Error messages begin with `where`, e.g.
    the name of the file.
    """
    data = table.get("data", {})
    name = data.get("task", DataSettings.task) if isinstance(data, Mapping) else DataSettings.task
    if not isinstance(name, str):
        raise SettingsError(f"{where}: data.task must be a string, not {name!r}")
    task = find_task(name, where)
    given = {name: section for name, section in table.items() if name not in ("format", "sizes")}
    _refuse_other_sections(given, task, where)
    kinds = get_type_hints(Recipe) | {task.name: _settings_class(task)}
    below = join_tables({"train": {"metric": task.metrics[0]}}, task.defaults)
    values = {
        "task" if name == task.name else name: _convert(section, kinds[name], where, name)
        for name, section in join_tables(below, given).items()
    }
    if task.settings and "task" not in values:
        values["task"] = _settings_class(task)()
    return Recipe(**values)


def find_task(name: str, where: str = "data.task") -> Task:
    """The task with this name; imports its module. If there is none, the error message begins with `where`."""
    task: Task = import_module("regard.tasks").find(name, where)
    return task


def _settings_class(task: Task) -> Any:
    return import_module("regard.tasks").settings_class(task)


def join_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two recipes, given as {section: {setting: value}}. If both have a setting, the value in `above` is used."""
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in below.items()}
    for section, values in above.items():
        beside = merged.get(section, {})
        both = isinstance(values, Mapping) and isinstance(beside, Mapping)  # `make_recipe` refuses other values
        merged[section] = {**beside, **values} if both else values
    return merged


def to_table(settings: Any) -> dict[str, Any]:
    """Convert a `Recipe` (only the sections that its task uses), or one section, to dictionaries for `make_recipe`."""
    if not isinstance(settings, Recipe):
        return dataclasses.asdict(settings, dict_factory=lambda items: {key: v for key, v in items if v is not None})
    task = find_task(settings.data.task)
    parts = {name: getattr(settings, "task" if name == task.name else name) for name in _sections(task)}
    if settings.pictures == PictureSettings():
        parts.pop("pictures", None)  # a task that also reads texts
    return {name: to_table(_settings_class(task)() if part is None else part) for name, part in parts.items()}


def all_sections() -> dict[str, type]:
    """The settings class of each section: those that tasks share and one per task, but not model."""
    hints = get_type_hints(Recipe)
    shared = {name: hints[name] for name in ("data", "pictures", "tokenizer", "train", "search")}
    return shared | {name: _settings_class(task) for name in TASKS if (task := find_task(name)).settings}


def _sections(task: Task) -> list[str]:
    """The names of the sections that recipes for this task have."""
    names = {name: getattr(task, kind) for name, kind in OPTIONAL_SECTIONS.items()} | {task.name: task.settings}
    return ["data", "tokenizer", "model", "train", *(name for name, is_used in names.items() if is_used)]


def _refuse_other_sections(table: Mapping[str, Any], task: Task, where: str) -> None:
    """Raise an error that begins with `where` if `table` has a section that is unknown or not for this task."""
    own = _sections(task)
    for name in table:
        if name in own:
            continue
        if name in all_sections():
            kind = OPTIONAL_SECTIONS.get(name, "")
            users = [one for one in TASKS if name == one or (kind and getattr(find_task(one), kind))]
            named = " or ".join(f'"{one}"' for one in users)
            raise SettingsError(f'{where}: [{name}] is for data.task = {named}, but data.task is "{task.name}"')
        raise SettingsError(f'{where}: unknown setting "{name}"{nearest(name, own)}')


@functools.cache
def describe(settings: type) -> Mapping[str, str]:
    """The help text of each field of a settings class: the string below the field in the source code."""
    texts: dict[str, str] = {}
    for cls in filter(dataclasses.is_dataclass, reversed(settings.__mro__)):
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, following in pairwise(body.body):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = " ".join(text.split())
    return {field.name: texts[field.name] for field in dataclasses.fields(settings)}


def build(kind: Any, table: Any, where: str, section: str) -> Any:
    """Build settings of the class `kind` from `table`, a dictionary of values by name; checks names and types.

    Settings that are not in the table keep their defaults; the defaults of a model are those of its preset. Error
    messages begin with `where`; `section` is the name of the section.
    """
    if not isinstance(table, Mapping):
        raise SettingsError(f"{where}: {section} must be a table of settings, not {table!r}")
    base = settings_of(table.get("arch", DEFAULT_ARCH), where) if kind is ModelSettings else kind()
    hints = get_type_hints(type(base))
    names = [f"{section}.{field.name}" for field in dataclasses.fields(base)]
    for key in table:
        if f"{section}.{key}" not in names:
            problem = f"{base.arch} has no setting" if kind is ModelSettings else "unknown setting"
            raise SettingsError(f'{where}: {problem} "{section}.{key}"{nearest(f"{section}.{key}", names)}')
    values = {key: _convert(value, hints[key], where, f"{section}.{key}") for key, value in table.items()}
    try:
        return dataclasses.replace(base, **values)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}") from None


def _convert(value: Any, hint: Any, where: str, name: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):  # `float | None`: TOML has no None
        return _convert(value, next(kind for kind in get_args(hint) if kind is not type(None)), where, name)
    if dataclasses.is_dataclass(hint):
        return build(hint, value, where, name)
    if origin is Literal:
        if value not in get_args(hint):
            choices = ", ".join(str(choice) for choice in get_args(hint))
            guess = nearest(str(value), map(str, get_args(hint)))
            raise SettingsError(f'{where}: {name} cannot be "{value}" (choose from {choices}){guess}')
        return value
    if origin is tuple:
        kinds = get_args(hint)
        if not isinstance(value, list | tuple):
            raise SettingsError(f"{where}: {name} must be a list, not {value!r}")
        if kinds[-1] is Ellipsis:
            return tuple(_convert(item, kinds[0], where, f"{name}[{place}]") for place, item in enumerate(value))
        if len(value) != len(kinds):
            raise SettingsError(f"{where}: {name} must hold {len(kinds)} values, not {len(value)}")
        return tuple(_convert(item, kind, where, name) for item, kind in zip(value, kinds, strict=True))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        kind = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}[hint]
        raise SettingsError(f"{where}: {name} must be {kind}, not {value!r}")
    return value
