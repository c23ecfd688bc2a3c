"""The HTTP APIs of tasks: their api.py, found through the registry."""

from __future__ import annotations

from types import ModuleType

from regard import tasks
from regard.errors import RunError


def served_tasks() -> dict[str, ModuleType]:
    """The module api.py of every task that has one, by the name of the task."""
    return {name: tasks.part(name, "api") for name in tasks.names() if tasks.has_part(name, "api")}


def api_of(task: str) -> ModuleType:
    """The module api.py of a task."""
    if task not in tasks.names() or not tasks.has_part(task, "api"):
        raise RunError(f'the task "{task}" has no HTTP API (api.py), so its runs cannot be served')
    return tasks.part(task, "api")
