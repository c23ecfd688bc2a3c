"""`regard compare`: trains several systems on the same data with the same budget, scores them, and collects a table.

`comparison_recipe.py` says which trainings a comparison needs. Each of them is a process of its own, so that its memory
can be measured; several may run side by side, each with its share of the cores. When all are finished, each system
answers the test set. A comparison that was interrupted continues where it stopped: finished systems are in
`systems/NAME.json`, and an unfinished training is resumed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from regard import __version__, plugins
from regard.data.pairs import content_hash
from regard.errors import WRITE_ERRORS, RegardError, RunError, SettingsError, Terminated, TrainingError
from regard.files import write_atomically
from regard.run import CARD, PREPARING, Run
from regard.system import end_with_parent, exclusive, one_at_a_time, usable_cores
from regard.tasks.comparison_recipe import Comparison, System, TrainingRun, check_settings, task_part
from regard.tasks.dataset import require_unchanged
from regard.tasks.training import Json, Log
from regard.training.signals import interruptible

FORMAT = 2
"""Version of the files in `systems/`."""
PARTS = ("train", "valid", "test")
MARK = "regard: "
"""How the line begins that says why a training failed."""
RISING = 0.01
"""Relative improvement of the best validation score in the last third of training from which a curve is "rising"."""


def compare(comparison: Comparison, folder: str | Path, log: Log = lambda line: None, jobs: int = 1) -> Json:
    """Train and score all systems that are not finished, and return the table and curves as JSON (docs/compare.md).

    `jobs`: number of trainings that run side by side; each uses an equal share of the processor cores.
    """
    check_settings(comparison)
    if not 1 <= jobs <= usable_cores():
        raise SettingsError(f"--jobs {jobs}: must be between 1 and the number of processor cores, {usable_cores()}")
    part = task_part(comparison.task)
    if warning := part.check_data(comparison.data):
        log(warning)
    out = Path(folder)
    with _locked(out):
        found = _results(comparison, out, log, jobs)
        measured = _measure(comparison, out, log)
    return {
        "title": comparison.title or "Comparison",
        "about": comparison.about,
        "task": comparison.task,
        "budget": comparison.describe_budget(),
        "seeds": list(comparison.seeds),
        "systems": [_row(system, found[system.name], part.SHOWN[0]) for system in comparison.systems],
        **part.table({name: [one["answers"] for one in results] for name, results in found.items()}, comparison.data),
        "published": list(comparison.published),
        **measured,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": usable_cores(),
        "version": __version__,
    }


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Make the folder of a comparison, and lock it: two comparisons in one folder would train the same runs."""
    with ExitStack() as stack:
        try:
            for part in ("runs", "systems"):
                (out / part).mkdir(parents=True, exist_ok=True)
            stack.enter_context(exclusive(out / ".lock"))
        except BlockingIOError:
            raise RunError(f"{out}: another comparison works in this folder; wait until it ends") from None
        except OSError as error:
            raise RunError(f"{out}: cannot write here ({error.strerror}); choose another --out") from None
        yield


def _results(comparison: Comparison, out: Path, log: Log, jobs: int) -> dict[str, list[Json]]:
    """The results of each system, one for each seed: those that are stored, and those of new trainings."""
    wanted = [
        (system, seed) for system in comparison.systems for seed in ((1,) if system.ensemble else comparison.seeds)
    ]
    made_of = {name: [content_hash(one) for one in getattr(comparison.data, name)] for name in PARTS}
    stored = [_stored_result(comparison, system, seed, out, made_of) for system, seed in wanted]
    unfinished = [chosen for chosen, result in zip(wanted, stored, strict=True) if not result]
    _train_all([member for chosen in unfinished for member in comparison.runs(*chosen)], out / "runs", log, jobs)
    found: dict[str, list[Json]] = {}
    for (system, seed), result in zip(wanted, stored, strict=True):
        if not result:
            log(f"scoring {system.name}" + (f", seed {seed}" if len(comparison.seeds) > 1 else ""))
        found.setdefault(system.name, []).append(result or _score(comparison, system, seed, out, made_of))
    return found


def _stored_result(comparison: Comparison, system: System, seed: int, out: Path, made_of: Json) -> Json:
    """The stored result of a system; empty if there is none. A result of other settings or data is an error."""
    path = out / "systems" / f"{system.name}-{seed}.json"
    stored = _read_result(path)
    if stored and stored["settings"] != json.loads(json.dumps(_settings(comparison, system, seed))):
        raise RunError(
            f"{path}: has other settings than the comparison; choose another --out, or remove this file and its runs"
        )
    if stored and (changed := [name for name in PARTS if stored["data"][name] != made_of[name]]):
        remedy = "remove the folder systems: all systems are then scored again"
        if changed != ["test"]:
            remedy = "remove this file and its runs"
        raise RunError(f"{path}: has other {changed[0]} data than the comparison; choose another --out, or {remedy}")
    return stored


def _settings(comparison: Comparison, system: System, seed: int) -> list[list[Json]]:
    """The settings of each training of each member of a system."""
    return [[run.table for run in steps] for steps in comparison.runs(system, seed)]


def _score(comparison: Comparison, system: System, seed: int, out: Path, made_of: Json) -> Json:
    """The result of a system whose trainings are finished: its cost, its curve, and its answers to the test set."""
    members = comparison.runs(system, seed)
    folders = [out / "runs" / steps[-1].name for steps in members]
    cards = [[Run.open(out / "runs" / run.name).card for run in steps] for steps in members]
    result = {
        "settings": _settings(comparison, system, seed),
        "data": made_of,
        "arch": cards[0][-1]["arch"],
        "parameters": sum(steps[-1]["parameters"] for steps in cards),
        "memory": max((card.get("memory") or 0 for steps in cards for card in steps), default=0) or None,
        "stopped": cards[0][-1]["training"]["stopped"],
        **{
            key: sum(card["training"][key] for steps in cards for card in steps)
            for key in ("seconds", "flops", "step", "tokens")
        },
        "curve": [] if system.ensemble else _curve([Run.open(out / "runs" / run.name) for run in members[0]]),
        "answers": task_part(comparison.task).answer(folders, comparison.data),
    }
    _write_result(out / "systems" / f"{system.name}-{seed}.json", result)
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

        systems = [system.name for system in comparison.systems if not system.ensemble and not system.finetune]
        log("measuring the reach of gradients")
        found["reach"] = []
        for name in systems:
            try:
                reach = gradient_reach(Run.open(out / "runs" / f"{name}-{comparison.seeds[0]}").load_model())
                found["reach"].append(reach | {"name": name})
            except RegardError as error:  # the model reads no long texts, or the run was removed: the scores remain
                log(f"{name}: the reach cannot be measured ({error})")
    return found


def _write_result(path: Path, result: Json) -> None:
    content = {"format": FORMAT, "sha256": _checksum(result), "result": result}
    write_atomically(path, (json.dumps(content, ensure_ascii=False) + "\n").encode())


def _read_result(path: Path) -> Json:
    """A stored result; empty if there is none. A file that is damaged is an error."""
    advice = "remove this file: the system is then scored again"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot read the result ({error}); {advice}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise RunError(f"{path}: is not a result of this version; {advice}")
    result: Json = content.get("result", {})
    if content.get("sha256") != _checksum(result):
        raise RunError(f"{path}: damaged or changed (its SHA-256 is another one); {advice}")
    return result


def _checksum(result: Json) -> str:
    return hashlib.sha256(json.dumps(result).encode()).hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# Trainings, each in a process of its own


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
    """Whether a training is finished. A training that was started with other settings or data is an error."""
    place, job = folder / run.name, folder / f"{run.name}.json"
    if not _is_prepared(place):
        return False
    advice = f"choose another --out, or remove {place} and {job}: the system is then trained again"
    try:
        table = json.loads(job.read_text(encoding="utf-8"))["table"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{job}: cannot read the settings of the training ({error}); {advice}") from None
    if table != json.loads(json.dumps(run.table)):
        raise RunError(f"{place}: was trained with other settings; {advice}")
    finished = Run.open(place)
    if finished.is_finished:
        require_unchanged(finished, f"; {advice}")
    return finished.is_finished


def _is_prepared(place: Path) -> bool:
    """Whether the run in the folder `place` can be resumed; if not, it must be started again."""
    return (place / CARD).is_file() and not (place / PREPARING).is_file()


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
    """Raise an error if a training has failed. `jobs`: number of trainings side by side; more than one have a log."""
    code, name = ended.process.returncode, ended.run.name
    where, reason = "the line above says why", ""
    if jobs > 1:
        where = f"{folder / name}.log says why"
        lines = (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        reason = next((f" ({line.removeprefix(MARK)})" for line in reversed(lines) if line.startswith(MARK)), "")
    if code == 2:
        raise SettingsError(f"{name}: cannot be trained{reason}; {where}")
    if code:
        raise TrainingError(f"{name}: training ended with exit code {code}; the same command continues it")


def work(path: str) -> int:
    """Train or continue one run of a comparison: the main function of its process. Returns the exit code."""
    from regard.system import keep_memory

    end_with_parent()
    job = Path(path)
    try:
        with one_at_a_time(job.with_name(f".{job.name}.lock")):  # a killed comparison may have left a training behind
            content = json.loads(job.read_text(encoding="utf-8"))
            for file in content["plugins"]:
                plugins.load(file)
            keep_memory()
            _train(content)
    except RegardError as error:
        print(f"{MARK}{error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in WRITE_ERRORS:
            raise
        print(f"{MARK}{job.with_suffix('')}: cannot be written ({error.strerror})", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        return 143 if isinstance(error, Terminated) else 130
    return 0


def _train(job: Json) -> None:
    from regard.tasks.train import resolve, resolve_finetune, resume, start

    out = Path(job["out"])
    if _is_prepared(out):
        resume(out)
    else:
        start(resolve_finetune(job["base"], job["table"]) if job["base"] else resolve(job["table"]), out)


# ---------------------------------------------------------------------------------------------------------------------
# Rows and curves


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


def _row(system: System, results: Sequence[Json], score: str) -> Json:
    """The facts of a system: means over the seeds, and the curve of the first seed with the trend of `score`."""

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
        "trend": trend(first["curve"], score),
    }


def trend(curve: Sequence[Json], score: str) -> str:
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
