"""Tasks: what a model can be trained for. The description of a task (`Task`), and where its modules are; no torch.

A task is a folder whose file names are fixed, or, in a plugin, a single module that holds the same objects:

    __init__.py     TASK         its facts (`Task`) and its settings; no torch
    training.py     TRAINING     from files to a trained run (`regard.tasks.training.Training`)
    <module>.py     load(run)    opens a trained run: the predictor
    report.py       report       extra sections of report.html (may be absent)
    inspect.py      inspect      what a model did with one input (may be absent)
    cli.py          COMMANDS     its commands (may be absent)
    api.py          Request      its HTTP API (may be absent: then it is not served)

Adding a task: the folder, and one line in `regard.registry.TASKS`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from regard.config.recipe import find_task as find
from regard.registry import TASKS

if TYPE_CHECKING:
    from regard.run import Run

__all__ = ["Task", "find", "has_part", "load", "names", "part", "part_name", "writing"]

PARTS = {"training": "TRAINING", "report": "report", "inspect": "inspect", "cli": "COMMANDS", "api": "Request"}
"""What each part of a task defines. A task in a single module has a part if the module defines this name."""


@dataclass(frozen=True)
class Task:
    """The facts of a task, as data."""

    name: str
    """As in data.task, --task and the registry; also the name of its section in a recipe."""
    help: str
    """What it is for, e.g. "label the words of sentences"."""
    does: str
    """What a trained run does, for messages: "tags words"."""
    model_kind: str
    """Which architectures fit: those whose settings have this `kind`."""
    predictor: str
    """Name of the public class that uses a trained run, e.g. "Tagger"."""
    module: str
    """Its module in the folder of the task; it has `load(run, *others)`."""
    command: str
    """The command that uses a trained run."""
    metrics: tuple[str, ...]
    """Validation scores that may pick the best weights (train.metric); the first is the default."""
    scores: Mapping[str, str]
    """All scores that are shown, with their formats, e.g. {"f1": "macro F1 {:.2%}"}; the most important one first."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """The commands in its cli.py, with a line of help each."""
    settings: type | None = None
    """Dataclass of its section in a recipe; None: it has no section."""
    writes: bool = False
    """Whether it writes text, and so has a [search] section."""
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings that differ from the general defaults, by section. A recipe, the plan and the user override them."""
    unit: str = "tokens"
    """What the loss is summed over and speed is counted in."""
    unsupported: tuple[str, ...] = ()
    """Settings that this task refuses, e.g. "train.r_drop"."""
    kept: tuple[str, ...] = ()
    """Settings of [data] that stay when a run is fine-tuned on other data."""


def names() -> tuple[str, ...]:
    return tuple(TASKS)


def writing() -> tuple[str, ...]:
    """The tasks whose models write text."""
    return tuple(name for name in TASKS if find(name).writes)


def part_name(task: str, name: str) -> str:
    """Name of the module with this part of a task: `name` in its package, or the task's single module."""
    home = import_module(TASKS[task])
    return f"{home.__name__}.{name}" if hasattr(home, "__path__") else home.__name__


def part(task: str, name: str) -> ModuleType:
    return import_module(part_name(task, name))


def has_part(task: str, name: str) -> bool:
    """Whether a task has this part."""
    home = import_module(TASKS[task])
    if hasattr(home, "__path__"):
        return importlib.util.find_spec(f"{home.__name__}.{name}") is not None
    return hasattr(home, PARTS.get(name, name))


def load(run: Run | str | Path, *others: str | Path) -> Any:
    """Open a trained run: a Translator, Chatbot, Classifier, ... Several runs that translate become an ensemble."""
    from regard.run import Run

    opened = run if isinstance(run, Run) else Run.open(run)
    task = find(opened.recipe.data.task)
    return part(task.name, task.module).load(opened.folder, *others)
