"""The description of a task (`Task`), and how the modules of a task are found. Nothing here imports torch.

A task is a folder whose file names are fixed, or, in a plugin, a single module that holds the same objects:

    __init__.py     TASK         the description (`Task`); imports nothing else, so that help is immediate
    settings.py                  the dataclass of its section in a recipe (optional); imports no torch
    training.py     TRAINING     from files to a trained run (`regard.tasks.training.Training`)
    <module>.py     load(run)    opens a trained run and returns its predictor
    report.py       report       more sections of report.html (optional)
    inspect.py      inspect      what a model computed for one input (optional)
    compare.py      answer       answers and scores for `regard compare` (optional)
    cli.py          COMMANDS     the commands of the task (optional)
    api.py          Request      the HTTP API (optional; without it the task is not served)
    page/view.js    views        its views on the page of the server (optional; `regard.server.page` has the contract)

A task whose runs read different things, e.g. words or frames, has a folder with the same files for each variant
(`Task.variants`); `Training.for_recipe` chooses the variant of a new run, and the sizes of a run that of the run.

To add a task, add its folder, and one line in `regard.registry.TASKS`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.errors import CorpusError, SettingsError, nearest
from regard.registry import TASKS

if TYPE_CHECKING:
    from regard.config import Corpus
    from regard.run import Run

PARTS = {
    "training": "TRAINING",
    "report": "report",
    "inspect": "inspect",
    "compare": "answer",
    "cli": "COMMANDS",
    "api": "Request",
}
"""For each part of a task, the name that its module defines. A task in a single module has the parts whose names the
module defines."""

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Task(NamedTuple):
    """The description of a task, e.g. translation: its name, commands, metrics, defaults, and where its code is."""

    name: str
    """The name in data.task, --task and the registry, and of the section of the task in a recipe."""
    help: str
    """What the task is for, e.g. "label the words of sentences"."""
    does: str
    """What a trained run does, for messages, e.g. "tags words"."""
    model_kind: str
    """The task uses the architectures whose settings have this `kind`."""
    predictor: str
    """Name of the public class that uses a trained run, e.g. "Tagger"."""
    module: str
    """Name of the module with the predictor and `load(run, *others)`, in the folder of the task."""
    command: str
    """The command that uses a trained run."""
    metrics: tuple[str, ...]
    """Validation scores that train.metric may name, to select the best weights; the first one is the default."""
    scores: Mapping[str, str]
    """All scores that are shown, with their formats, e.g. {"f1": "macro F1 {:.2%}"}; the most important one first."""
    commands: Mapping[str, str] = NOTHING
    """The commands in cli.py, each with one line of help."""
    settings: str = ""
    """Name of the dataclass in settings.py, for the section of the task in a recipe; empty: there is no section."""
    writes: bool = False
    """Whether the models write text. Recipes of such tasks have a [search] section."""
    reads_pictures: bool = False
    """Whether the task reads pictures, or can read them. Its recipes may have a [pictures] section."""
    defaults: Mapping[str, Mapping[str, Any]] = NOTHING
    """Settings that differ from the general defaults, by section. A recipe, the plan and the user override them."""
    unit: str = "tokens"
    """What the loss is averaged over and the training speed is counted in, e.g. "documents"."""
    unsupported: tuple[str, ...] = ()
    """Settings that are an error for this task, e.g. "train.r_drop"."""
    kept: tuple[str, ...] = ()
    """Settings of [data] that fine-tuning copies from the run that is fine-tuned."""
    variants: Mapping[str, str] = NOTHING
    """Folders in that of the task for runs that read something else, by the size that only such runs store in [sizes],
    e.g. {"frame_width": "frames"}. They have the same files; a part that is missing there is that of the task."""
    files: tuple[str, ...] = ()
    """Files of a run, besides those of every task, that the predictor reads and that hold no text of the user."""
    text_files: tuple[str, ...] = ()
    """Files of a run that the predictor reads and that hold text of the user, e.g. a knowledge base."""
    pipeline_tag: str = ""
    """The name of the task on model hubs, e.g. "translation"."""


def find(name: str, where: str = "data.task") -> Task:
    """Return the task with this name. `where`: the setting that has the name, for the error message."""
    if name not in TASKS:
        guess = nearest(str(name), TASKS) or f"; choose from {', '.join(TASKS)}"
        raise SettingsError(f'{where}: there is no task "{name}"{guess}')
    task: Task = import_module(TASKS[name]).TASK
    return task


def settings_class(task: Task) -> Any:
    """The dataclass of the task's own section in a recipe, e.g. [tag]; None if the task has no such section."""
    return getattr(part(task.name, "settings"), task.settings) if task.settings else None


def part_name(task: str, name: str) -> str:
    """Full name of the Python module with one part of a task: `part_name("tag", "cli")` is "regard.tasks.tag.cli".

    If a plugin defines the whole task in a single module, every part is in this module.
    """
    home = import_module(TASKS[task])
    return f"{home.__name__}.{name}" if hasattr(home, "__path__") else home.__name__


def part(task: str, name: str) -> ModuleType:
    return import_module(part_name(task, name))


def part_of_run(run: Run, name: str) -> ModuleType:
    """A part of the task of a run; if the run belongs to a variant that has this part, the part of the variant."""
    return import_module(part_name_of_run(run.recipe.data.task, name, run.sizes))


def part_name_of_run(task: str, name: str, sizes: Iterable[str]) -> str:
    """Full name of the module of `part_of_run`; `sizes`: the names of the sizes of the run."""
    for size, folder in find(task).variants.items():
        module = part_name(task, f"{folder}.{name}")
        if size in sizes and importlib.util.find_spec(module) is not None:
            return module
    return part_name(task, name)


def has_part(task: str, name: str) -> bool:
    home = import_module(TASKS[task])
    if hasattr(home, "__path__"):
        return importlib.util.find_spec(f"{home.__name__}.{name}") is not None
    return hasattr(home, PARTS.get(name, name))


def folder(task: str) -> Path | None:
    """The folder of a task; None if a plugin defines the whole task in a single module."""
    home = import_module(TASKS[task])
    return Path(home.__path__[0]) if hasattr(home, "__path__") else None


def single_file(corpus: Corpus, content: str) -> Path:
    """Return the path of a corpus that must be one file. `content` describes it in errors, e.g. "words and labels"."""
    if not corpus.source:
        raise CorpusError("--source", "no file given; name one")
    if corpus.target:
        raise CorpusError(corpus.target, f"{content} are in one file; leave out --target")
    return Path(corpus.source)


def load(run: Run | str | Path, *others: str | Path) -> Any:
    """Open a trained run and return its predictor, which depends on the task: a Translator, Chatbot, Classifier, ...

    `run` may also be the address of a published run, "hf:OWNER/NAME", which is fetched. Translation and chat runs can
    form an ensemble: `others` are its other members.
    """
    from regard import hub
    from regard.run import Run

    opened = Run.open(hub.fetch(run) if hub.is_address(run) else run)
    task = find(opened.recipe.data.task)
    return part_of_run(opened, task.module).load(opened, *others)
