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

_HOMES = {
    "RegardError": "regard.errors",
    "load": "regard.tasks",
    "trace": "regard.layers.hooks",
    "train": "regard.tasks.train",
}
"""Public names and their modules, imported when first used: `import regard` does not import torch."""


def _homes() -> dict[str, str]:
    """Public names and their modules, the predictors of all registered tasks included."""
    from regard import tasks

    found = [tasks.find(name) for name in tasks.names()]
    return _HOMES | {task.predictor: tasks.part_name(task.name, task.module) for task in found}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*_homes(), "__version__"])
    home = _HOMES.get(name) or (_homes().get(name) if name[:1].isupper() else None)  # predictors are classes
    if home is None:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    names: list[str] = __getattr__("__all__")
    return names
