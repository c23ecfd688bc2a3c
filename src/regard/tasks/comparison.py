"""`regard compare`: trains several systems on the same data with the same budget, scores them, and collects a table.

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

Each training is a process of its own, so that its memory can be measured; several may run side by side, each with its
share of the cores. When all are finished, each system answers the test set. A comparison that was interrupted continues
where it stopped: finished systems are in `systems/NAME.json`, and an unfinished training is resumed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from regard import __version__, plugins, tasks
from regard.config import DataSettings
from regard.config.ranges import CheckedSettings, CountOrZero, NotNegative
from regard.config.recipe import all_sections, build, join_tables, make_recipe, read_table
from regard.errors import RegardError, RunError, SettingsError, Terminated, TrainingError, nearest
from regard.files import write_atomically
from regard.run import Run
from regard.system import usable_cores
from regard.tasks.training import Json, Log
from regard.training.signals import interruptible

FORMAT = 1
"""Version of the files in `systems/`."""
RISING = 0.01
"""Relative improvement of the best validation score in the last third of training from which a curve is "rising"."""


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
    systems = table.get("systems", {})
    if not isinstance(systems, dict) or not systems:
        raise SettingsError(f"{where}: has no systems; add a table [systems.NAME] for each system to compare")
    measure = table.get("measure", [])
    if not isinstance(measure, list) or not all(name in MEASUREMENTS for name in measure):
        raise SettingsError(f"{where}: measure must be a list of {' and '.join(MEASUREMENTS)}, not {measure!r}")
    published = table.get("published", [])
    if not isinstance(published, list) or not all(isinstance(row, dict) and "name" in row for row in published):
        raise SettingsError(f"{where}: each published row is a table [[published]] with a name")
    made = Comparison(
        build(DataSettings, shared.get("data", {}), where, "data"),
        build(Budget, table.get("budget", {}), where, "budget"),
        tuple(_read_system(name, entry, sections, where) for name, entry in systems.items()),
        _read_seeds(table.get("seeds", [1]), where),
        shared,
        str(table.get("title", "")),
        str(table.get("about", "")),
        tuple(published),
        tuple(measure),
    )
    _check_references(made, where)
    return made


def _read_system(name: str, entry: Any, sections: Sequence[str], where: str) -> System:
    place = f"{where}: [systems.{name}]"
    if not isinstance(entry, dict):
        raise SettingsError(f"{place} must be a table")
    if not re.fullmatch(r"[\w.,+ -]+", name) or name.strip(". ") != name:
        raise SettingsError(f"{place}: use letters, digits, spaces and . , + - _ in names, which become folder names")
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
    if not 0 < own.get("share", 0.2) < 1:
        raise SettingsError(f"{place}: share must be between 0 and 1, not {own['share']}")
    if own.get("members", 2) < 2:
        raise SettingsError(f"{place}: an ensemble needs at least 2 members")
    return System(name, {key: value for key, value in entry.items() if key in sections}, **own)


def _read_seeds(seeds: Any, where: str) -> tuple[int, ...]:
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise SettingsError(f"{where}: seeds must be a list of whole numbers, e.g. [1, 2, 3]")
    return tuple(dict.fromkeys(seeds))


def _check_references(made: Comparison, where: str) -> None:
    names = [system.name for system in made.systems]
    for system in made.systems:
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
    chosen = tuple(system for system in comparison.systems if system.name in names)
    needed = {other for system in chosen for other in (system.finetune, system.ensemble) if other}
    kept = tuple(system for system in comparison.systems if system.name in {*names, *needed})
    return replace(comparison, systems=kept)


# ---------------------------------------------------------------------------------------------------------------------
# Training and scoring


def compare(comparison: Comparison, folder: str | Path, log: Log = lambda line: None, jobs: int = 1) -> Json:
    """Train and score all systems that are not finished, and return the table and curves as JSON (docs/compare.md).

    `jobs`: number of trainings that run side by side; each uses an equal share of the processor cores.
    """
    check_settings(comparison)
    if not 1 <= jobs <= usable_cores():
        raise SettingsError(f"--jobs {jobs}: must be between 1 and the number of processor cores, {usable_cores()}")
    out = Path(folder)
    for part in ("runs", "systems"):
        (out / part).mkdir(parents=True, exist_ok=True)
    wanted = [
        (system, seed) for system in comparison.systems for seed in ((1,) if system.ensemble else comparison.seeds)
    ]
    stored = [_stored_result(comparison, system, seed, out) for system, seed in wanted]
    unfinished = [chosen for chosen, result in zip(wanted, stored, strict=True) if not result]
    _train_all([member for chosen in unfinished for member in comparison.runs(*chosen)], out / "runs", log, jobs)
    found: dict[str, list[Json]] = {}
    for (system, seed), result in zip(wanted, stored, strict=True):
        if not result:
            log(f"scoring {system.name}" + (f", seed {seed}" if len(comparison.seeds) > 1 else ""))
        found.setdefault(system.name, []).append(result or _score(comparison, system, seed, out))
    part = _part(comparison.task)
    return {
        "title": comparison.title or "Comparison",
        "about": comparison.about,
        "task": comparison.task,
        "budget": comparison.describe_budget(),
        "seeds": list(comparison.seeds),
        "systems": [_row(system, found[system.name]) for system in comparison.systems],
        **part.table({name: [one["answers"] for one in results] for name, results in found.items()}, comparison.data),
        "published": list(comparison.published),
        **_measure(comparison, out, log),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": usable_cores(),
        "version": __version__,
    }


def check_settings(comparison: Comparison) -> None:
    """Check the settings of all trainings, so that no mistake is found only after hours of training."""
    from regard.tasks.train import check

    _part(comparison.task)
    for system in comparison.systems:
        for run in comparison.runs(system, comparison.seeds[0])[0]:
            table = (
                join_tables(comparison.table(comparison.find(system.finetune), 1), run.table) if run.base else run.table
            )
            check(make_recipe(table, where=f"[systems.{system.name}]"))


def _part(task: str) -> Any:
    """The module `compare` of a task, which answers the test set and computes scores."""
    if not tasks.has_part(task, "compare"):
        raise SettingsError(f'data.task = "{task}": runs of this task cannot be compared yet')
    return tasks.part(task, "compare")


def _stored_result(comparison: Comparison, system: System, seed: int, out: Path) -> Json:
    """The stored result of a system; empty if there is none. A result with other settings is an error."""
    path = out / "systems" / f"{system.name}-{seed}.json"
    stored = _read_result(path)
    if stored and stored["settings"] != json.loads(json.dumps(_settings(comparison, system, seed))):
        raise RunError(
            f"{path}: has other settings than the comparison; choose another --out, or remove this file and its runs"
        )
    return stored


def _settings(comparison: Comparison, system: System, seed: int) -> list[list[Json]]:
    """The settings of each training of each member of a system."""
    return [[run.table for run in steps] for steps in comparison.runs(system, seed)]


def _score(comparison: Comparison, system: System, seed: int, out: Path) -> Json:
    """The result of a system whose trainings are finished: its cost, its curve, and its answers to the test set."""
    members = comparison.runs(system, seed)
    folders = [out / "runs" / steps[-1].name for steps in members]
    cards = [[Run.open(out / "runs" / run.name).card for run in steps] for steps in members]
    result = {
        "format": FORMAT,
        "settings": _settings(comparison, system, seed),
        "arch": cards[0][-1]["arch"],
        "parameters": sum(steps[-1]["parameters"] for steps in cards),
        "memory": max((card.get("memory") or 0 for steps in cards for card in steps), default=0) or None,
        "stopped": cards[0][-1]["training"]["stopped"],
        **{
            key: sum(card["training"][key] for steps in cards for card in steps)
            for key in ("seconds", "flops", "step", "tokens")
        },
        "curve": [] if system.ensemble else _curve([Run.open(out / "runs" / run.name) for run in members[0]]),
        "answers": _part(comparison.task).answer(folders, comparison.data),
    }
    path = out / "systems" / f"{system.name}-{seed}.json"
    write_atomically(path, (json.dumps(result, ensure_ascii=False) + "\n").encode())
    return result


def _measure(comparison: Comparison, out: Path, log: Log) -> Json:
    """Make the measurements that `comparison.measure` lists (analysis/complexity.py, analysis/dependency_path.py)."""
    found: Json = {}
    if "complexity" in comparison.measure:
        from regard.analysis.complexity import complexity_table

        log("measuring the complexity of layers")
        found["complexity"] = complexity_table()
    if "reach" in comparison.measure:
        from regard.analysis.dependency_path import gradient_reach

        systems = [system for system in comparison.systems if not system.ensemble and not system.finetune]
        log("measuring the reach of gradients")
        found["reach"] = [
            gradient_reach(Run.open(out / "runs" / f"{system.name}-{comparison.seeds[0]}").load_model())
            | {"name": system.name}
            for system in systems
        ]
    return found


def _read_result(path: Path) -> Json:
    """A stored result; empty if there is none. A file that cannot be read is an error."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunError(
            f"{path}: cannot read the result ({error}); remove this file: the system is scored again"
        ) from None
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise RunError(f"{path}: is not a result of this version; remove this file: the system is scored again")
    return result


class Process(NamedTuple):
    """A training in its own process: the run, and the trainings that follow it because they fine-tune it."""

    process: subprocess.Popen[bytes]
    run: TrainingRun
    following: Sequence[TrainingRun]


def _train_all(members: Sequence[Sequence[TrainingRun]], folder: Path, log: Log, jobs: int) -> None:
    """Train or continue all runs that are not finished, `jobs` at a time. If one fails, the others are stopped."""
    unfinished = {steps[-1].name: [run for run in steps if not _is_finished(run, folder)] for steps in members}
    waiting = [steps for steps in unfinished.values() if steps]
    total, running = sum(map(len, waiting)), list[Process]()
    started = 0
    with interruptible():
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    run, *following = waiting.pop(0)
                    started += 1
                    log(f"[{started} of {total}] training {folder / run.name}")
                    running.append(Process(_start(run, folder, jobs), run, following))
                for one in [one for one in running if one.process.poll() is not None]:
                    running.remove(one)
                    _check_exit(one, folder, jobs)
                    if one.following:
                        waiting.insert(0, list(one.following))
                if running:
                    time.sleep(0.05)
        finally:
            for one in running:
                one.process.terminate()  # it saves a checkpoint
            for one in running:
                one.process.wait()


def _is_finished(run: TrainingRun, folder: Path) -> bool:
    """Whether a training is finished. A training that was started with other settings is an error."""
    place, job = folder / run.name, folder / f"{run.name}.json"
    if not (place / "card.json").is_file():
        return False
    if json.loads(job.read_text(encoding="utf-8"))["table"] != json.loads(json.dumps(run.table)):
        raise RunError(f"{place}: was trained with other settings; choose another --out, or remove {place} and {job}")
    return Run.open(place).is_finished


def _start(run: TrainingRun, folder: Path, jobs: int) -> subprocess.Popen[bytes]:
    """Start a training. If it is one of several, its output goes to the file NAME.log, and it gets a share of cores."""
    job = folder / f"{run.name}.json"
    base = str(folder / run.base) if run.base else ""
    content = {"table": run.table, "base": base, "out": str(folder / run.name), "plugins": plugins.files()}
    write_atomically(job, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    command = [
        sys.executable,
        "-c",
        "import sys; from regard.tasks.comparison import work; sys.exit(work(sys.argv[1]))",
        str(job),
    ]
    if jobs == 1:
        return subprocess.Popen(command)
    environment = os.environ | {"OMP_NUM_THREADS": str(usable_cores() // jobs)}
    with (folder / f"{run.name}.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def _check_exit(ended: Process, folder: Path, jobs: int) -> None:
    code, name = ended.process.returncode, ended.run.name
    where = "the line above" if jobs == 1 else f"the end of {folder / name}.log"
    if code == 2:
        raise SettingsError(f"{name}: cannot be trained; {where} says why")
    if code:
        raise TrainingError(f"{name}: training ended with exit code {code}; the same command continues it")


def work(path: str) -> int:
    """Train or continue one run of a comparison: the main function of its process. Returns the exit code."""
    from regard.system import keep_memory
    from regard.tasks.train import resolve, resolve_finetune, resume, start

    job = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        for file in job["plugins"]:
            plugins.load(file)
        keep_memory()
        out = Path(job["out"])
        if (out / "card.json").is_file() and not (out / ".preparing").is_file():
            resume(out)
        else:
            start(resolve_finetune(job["base"], job["table"]) if job["base"] else resolve(job["table"]), out)
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        return 143 if isinstance(error, Terminated) else 130
    return 0


def _curve(runs: Sequence[Run]) -> list[Json]:
    """The validations of a training: seconds, FLOPs and scores. Fine-tuning continues the curve of its base."""
    points, seconds, flops = [], 0.0, 0.0
    for run in runs:
        validations = [line for line in run.metrics() if line["kind"] == "validation"]
        for line in validations:
            scores = {key: value for key, value in line.items() if isinstance(value, float) and key != "seconds"}
            points.append(scores | {"seconds": seconds + line["seconds"], "flops": flops + line["flops"]})
        seconds, flops = seconds + run.card["training"]["seconds"], flops + run.card["training"]["flops"]
    return points


def _row(system: System, results: Sequence[Json]) -> Json:
    """The facts of a system: means over the seeds, and the curve of the first seed."""

    def mean(key: str) -> float | None:
        values = [one[key] for one in results if one[key] is not None]
        return sum(values) / len(values) if values else None

    first = results[0]
    return {
        "name": system.name,
        "arch": first["arch"],
        "ensemble": system.members if system.ensemble else 0,
        "finetuned": system.finetune,
        "published": system.published,
        "stopped": first["stopped"],
        **{key: mean(key) for key in ("parameters", "memory", "seconds", "flops", "step", "tokens")},
        "curve": first["curve"],
        "trend": trend(first["curve"]),
    }


def trend(curve: Sequence[Json], score: str = "bleu") -> str:
    """Whether a curve still rises in the last third of the training: "rising", "flat", or "" if it is too short."""
    points = [point for point in curve if score in point]
    if len(points) < 4:
        return ""
    end = points[-1]["seconds"]
    early = [point[score] for point in points if point["seconds"] <= 2 * end / 3]
    if not early:
        return ""
    best = max(point[score] for point in points)
    return "rising" if best - max(early) > RISING * max(best, 1e-9) else "flat"
