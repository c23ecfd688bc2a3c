"""The file of a comparison (`regard compare`): its systems, data and budget, and which trainings they need.

A comparison is a TOML file. Its sections [data], [tokenizer], [train] and [search] hold for all systems; a table
[systems.NAME] has the settings of one system, which override them. Settings that are not given are planned, as in
`regard train`.

    seeds = [1, 2]                      # each system is trained once per seed
    budget.minutes = 15                 # or steps, or flops

    [systems.small]
    model.heads = 8

    [systems."small + reward"]          # 80 % of the budget for the system small, 20 % for reward fine-tuning
    finetune = "small"
    share = 0.2
    translate.objective = "reward"

    [systems."2 small ones"]            # an ensemble of two seeds
    ensemble = "small"
    members = 2
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from regard import tasks
from regard.config import DataSettings
from regard.config.ranges import CheckedSettings, CountOrZero, NotNegative
from regard.config.recipe import all_sections, build, join_tables, make_recipe, read_table
from regard.errors import SettingsError, nearest
from regard.tasks.training import Json

LONGEST_NAME = 100
"""Bytes of the name of a system: file systems limit the names of its files."""
COMES_FROM_BASE = ("model", "tokenizer", "data")
"""Sections that fine-tuning takes from the system that it fine-tunes."""


@dataclass(frozen=True)
class Budget(CheckedSettings):
    """The limit of the training of each system. Exactly one of the three fields is above 0."""

    section: ClassVar[str] = "budget"

    minutes: NotNegative = 0.0
    """Minutes of training and validation."""
    steps: CountOrZero = 0
    """Training steps."""
    flops: NotNegative = 0.0
    """Floating-point operations."""

    def settings(self, share: float = 1.0) -> Json:
        """The settings of [train] that end a training after `share` of the budget."""
        if self.steps:
            return {"max_steps": max(round(share * self.steps), 1)}
        return {"max_minutes": share * self.minutes} if self.minutes else {"max_flops": share * self.flops}

    def describe(self) -> str:
        """The budget as text, e.g. "15 minutes"."""
        if self.steps:
            return f"{self.steps:,} steps"
        return f"{self.minutes:g} minutes" if self.minutes else f"{self.flops:.1e} FLOPs"


@dataclass(frozen=True)
class System:
    """One row of the table: a system that is trained, fine-tuned from another one, or an ensemble."""

    name: str
    settings: Json = field(default_factory=dict)
    """Tables of settings that differ from those of the comparison."""
    finetune: str = ""
    """The system that is fine-tuned; empty: trained from the beginning."""
    share: float = 0.2
    """Share of the budget that fine-tuning gets; the training before it gets the rest."""
    ensemble: str = ""
    """The system whose runs form an ensemble; empty: no ensemble."""
    members: int = 2
    """Number of runs in the ensemble, trained with the seeds 1, 2, ..."""
    published: str = ""
    """The name of the published row that describes the same system."""


@dataclass(frozen=True)
class TrainingRun:
    """One training of a comparison: the name of its run folder, its settings, and the run that it fine-tunes."""

    name: str
    table: Json
    base: str = ""


@dataclass(frozen=True)
class Comparison:
    """The systems, their data and their budget."""

    data: DataSettings
    budget: Budget
    systems: tuple[System, ...]
    seeds: tuple[int, ...] = (1,)
    shared: Json = field(default_factory=dict)
    """Settings of all systems."""
    title: str = ""
    about: str = ""
    """Text for the page, e.g. what was learned."""
    published: tuple[Json, ...] = ()
    """Rows of published results: name, and any columns."""
    measure: tuple[str, ...] = ()
    """Further measurements for the page: "complexity" of layers, "reach" of the gradients in each trained encoder."""

    @property
    def task(self) -> str:
        return self.data.task

    def runs(self, system: System, seed: int) -> list[list[TrainingRun]]:
        """The trainings of each member of a system (an ensemble has several), in the order in which they happen."""
        if system.ensemble:
            of = self.find(system.ensemble)
            return [steps for member in range(system.members) for steps in self.runs(of, member + 1)]
        name = f"{system.name}-{seed}"
        if not system.finetune:
            return [[TrainingRun(name, self.table(system, seed))]]
        base = TrainingRun(f"{name}-base", self.table(self.find(system.finetune), seed, 1 - system.share))
        changed = join_tables(
            system.settings,
            {"train": {"seed": seed, **system.settings.get("train", {}), **self.budget.settings(system.share)}},
        )
        data = {key: self.shared["data"][key] for key in ("train", "valid")}
        return [[base, TrainingRun(name, changed | {"data": data}, base.name)]]

    def table(self, system: System, seed: int, share: float = 1.0) -> Json:
        """The settings of one training, as nested tables, without the test data: it is used once, at the end."""
        data = {key: value for key, value in self.shared["data"].items() if key != "test"}
        ending = {"train": {"seed": seed, **self.budget.settings(share)}}
        return join_tables(join_tables(self.shared | {"data": data}, system.settings), ending)

    def describe_budget(self) -> str:
        """The budget as text, e.g. "15 minutes of processor time"."""
        processor = self.budget.minutes and self.shared.get("train", {}).get("clock") == "processor"
        return self.budget.describe() + (" of processor time" if processor else "")

    def find(self, name: str) -> System:
        return next(system for system in self.systems if system.name == name)


MEASUREMENTS = ("complexity", "reach")
TEXTS = ("title", "about")
OWN = ("title", "about", "seeds", "budget", "systems", "published", "measure")
"""Entries of a comparison file that are not sections of a recipe."""


def read_comparison(path: str | Path, given: Mapping[str, Any] | None = None) -> Comparison:
    """Read a comparison file. `given`: tables of settings, a budget and seeds that override those of the file."""
    table = join_tables(read_table(path), given or {})
    where = str(path)
    shared = {name: value for name, value in table.items() if name not in (*OWN, "format")}
    sections = ["model", *all_sections()]
    for name in shared:
        if name not in sections:
            raise SettingsError(f'{where}: unknown section "{name}"{nearest(name, [*sections, *OWN])}')
    _check_endings(shared, where)
    systems = table.get("systems", {})
    if not isinstance(systems, dict) or not systems:
        raise SettingsError(f"{where}: has no systems; add a table [systems.NAME] for each system to compare")
    measure = table.get("measure", [])
    if not isinstance(measure, list) or not all(name in MEASUREMENTS for name in measure):
        raise SettingsError(f"{where}: measure must be a list of {' and '.join(MEASUREMENTS)}, not {measure!r}")
    for name in TEXTS:
        if not isinstance(table.get(name, ""), str):
            raise SettingsError(f"{where}: {name} must be a text, not {table[name]!r}")
    made = Comparison(
        build(DataSettings, shared.get("data", {}), where, "data"),
        build(Budget, table.get("budget", {}), where, "budget"),
        tuple(_read_system(name, entry, sections, where) for name, entry in systems.items()),
        _read_seeds(table.get("seeds", [1]), where),
        shared,
        table.get("title", ""),
        table.get("about", ""),
        _read_published(table.get("published", []), where),
        tuple(measure),
    )
    _check_references(made, where)
    return made


def _read_system(name: str, entry: Any, sections: Sequence[str], where: str) -> System:
    place = f"{where}: [systems.{name}]"
    if not isinstance(entry, dict):
        raise SettingsError(f"{place} must be a table")
    if not re.fullmatch(r"[\w.,+ -]+", name) or name.strip(". ") != name:
        rule = "use letters, digits, spaces and . , + - _ in names, which become folder names"
        raise SettingsError(f"{where}: systems.{name!r}: {rule}")
    if len(name.encode()) > LONGEST_NAME:
        raise SettingsError(f"{where}: [systems.{name[:20]}...]: the name is too long for a folder; shorten it")
    if "finetune" in entry and "ensemble" in entry:
        raise SettingsError(f"{place} is fine-tuned or an ensemble, not both; leave out finetune or ensemble")
    kinds = {"finetune": str, "ensemble": str, "published": str, "share": float, "members": int}
    own: Json = {}
    for key, value in entry.items():
        if key in kinds:
            value = float(value) if key == "share" and isinstance(value, int) else value
            if type(value) is not kinds[key]:
                raise SettingsError(f"{place}: {key} must be of the type {kinds[key].__name__}, not {value!r}")
            own[key] = value
        elif key not in sections or not isinstance(value, dict):
            hint = nearest(key, [*kinds, *sections])
            raise SettingsError(
                f'{place}: "{key}" is not a section of settings{hint}; write settings as section.name = value'
            )
    for key, needed in (("share", "finetune"), ("members", "ensemble")):
        if key in own and needed not in own:
            raise SettingsError(f"{place}: {key} has no effect without {needed}; leave it out")
    if not 0 < own.get("share", 0.2) < 1:
        raise SettingsError(f"{place}: share must be between 0 and 1, not {own['share']}")
    if own.get("members", 2) < 2:
        raise SettingsError(f"{place}: an ensemble needs at least 2 members")
    settings = {key: value for key, value in entry.items() if key in sections}
    _check_sections(settings, own, place)
    return System(name, settings, **own)


def _check_sections(settings: Json, own: Json, place: str) -> None:
    """Raise an error for settings that would have no effect in this system, or make its scores incomparable."""
    if "ensemble" in own and settings:
        raise SettingsError(f"{place}: an ensemble has the settings of its members; leave out {next(iter(settings))}")
    for section in COMES_FROM_BASE:
        if "finetune" in own and section in settings:
            raise SettingsError(f"{place}: {section} comes from {own['finetune']} in fine-tuning; leave it out")
    _check_endings(settings, place)
    for key in ("task", "test"):
        if key in settings.get("data", {}):
            raise SettingsError(f"{place}: data.{key} must be the same for all systems; set it in [data]")


def _check_endings(settings: Json, place: str) -> None:
    """Raise an error for settings that end a training before the budget is spent, or that the budget replaces."""
    for key in ("max_steps", "max_minutes", "max_flops"):
        if key in settings.get("train", {}):
            raise SettingsError(f"{place}: train.{key}: the budget ends each training; set budget.{key[4:]} instead")


def _read_published(rows: Any, where: str) -> tuple[Json, ...]:
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows
    ):
        raise SettingsError(f"{where}: each published row is a table [[published]] with a name")
    for row in rows:
        for key, value in row.items():
            if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
                raise SettingsError(
                    f"{where}: published.{row['name']}: {key} must be a number or a text, not {value!r}"
                )
    return tuple(rows)


def _read_seeds(seeds: Any, where: str) -> tuple[int, ...]:
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise SettingsError(f"{where}: seeds must be a list of whole numbers, e.g. [1, 2, 3]")
    return tuple(dict.fromkeys(seeds))


def _check_references(made: Comparison, where: str) -> None:
    names = [system.name for system in made.systems]
    rows = [row["name"] for row in made.published]
    for system in made.systems:
        if system.published and system.published not in rows:
            raise SettingsError(
                f"{where}: [systems.{system.name}] published: there is no row "
                f'"{system.published}" in [[published]]{nearest(system.published, rows)}'
            )
        for key, other in (("finetune", system.finetune), ("ensemble", system.ensemble)):
            if not other:
                continue
            if other not in names or other == system.name:
                raise SettingsError(
                    f'{where}: [systems.{system.name}] {key}: there is no system "{other}"{nearest(other, names)}'
                )
            if made.find(other).ensemble or (key == "finetune" and made.find(other).finetune):
                problem = f"{other} is not trained from the beginning; choose another system"
                raise SettingsError(f"{where}: [systems.{system.name}] {key}: {problem}")
    if sum(map(bool, (made.budget.minutes, made.budget.steps, made.budget.flops))) != 1:
        raise SettingsError(f"{where}: give one budget: budget.minutes, budget.steps or budget.flops")
    if not made.data.train:
        raise SettingsError(f"{where}: has no training data; give --source and --target")
    for part, why in (("valid", "to select the best weights"), ("test", "to score the systems")):
        if not getattr(made.data, part):
            advice = f'give --{part}-source and --{part}-target, or --{part}; "regard data split" makes the parts'
            raise SettingsError(f"{where}: has no {part} data {why}; {advice}")


def only(comparison: Comparison, names: Sequence[str]) -> Comparison:
    """The comparison with only these systems, and the systems that they are made from."""
    known = [system.name for system in comparison.systems]
    for name in names:
        if name not in known:
            raise SettingsError(f"--only {name}: there is no such system{nearest(name, known)}")
    waiting, kept = list(names), set[str]()
    while waiting:  # an ensemble may have fine-tuned members
        system = comparison.find(waiting.pop())
        kept.add(system.name)
        waiting += filter(None, (system.finetune, system.ensemble))
    return replace(comparison, systems=tuple(system for system in comparison.systems if system.name in kept))


def check_settings(comparison: Comparison) -> None:
    """Check the settings of all trainings, so that no mistake is found only after hours of training."""
    from regard.tasks.train import check

    task_part(comparison.task)
    for system in comparison.systems:
        for seed in comparison.seeds:
            base, *following = comparison.runs(system, seed)[0]
            for table in (base.table, *(join_tables(base.table, run.table) for run in following)):
                check(make_recipe(table, where=f"[systems.{system.name}]"))


def task_part(task: str) -> Any:
    """The module `compare` of a task, which reads the data, answers the test set and computes scores."""
    if not tasks.has_part(task, "compare"):
        raise SettingsError(f'data.task = "{task}": runs of this task cannot be compared yet')
    return tasks.part(task, "compare")
