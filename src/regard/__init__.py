"""Regard trains, runs and explains attention models that turn one sequence into another."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.errors import RegardError as RegardError
    from regard.layers.hooks import trace as trace
    from regard.tasks import load as load
    from regard.tasks.train import train as train

__version__ = "0.1.0"

_MODULES = {
    "RegardError": "regard.errors",
    "load": "regard.tasks",
    "trace": "regard.layers.hooks",
    "train": "regard.tasks.train",
}
"""Public names and their modules. A module is imported when its name is first used: `import regard` needs no torch."""


def _all_modules() -> dict[str, str]:
    """All public names and their modules: `_MODULES`, and the predictor class of each task, e.g. `Translator`."""
    from regard import tasks
    from regard.registry import TASKS

    found = [tasks.find(name) for name in TASKS]
    return _MODULES | {task.predictor: tasks.part_name(task.name, task.module) for task in found}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    module = _MODULES.get(name) or (_all_modules().get(name) if name[:1].isupper() else None)  # e.g. Translator
    if module is None:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*_all_modules(), "__version__"])
