"""The HTTP APIs of tasks: their api.py, found through the registry."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from regard.errors import RunError

_HELP = {
    "translate": "translate sentences",
    "chat": "reply to a conversation",
    "classify": "label documents",
    "tag": "label the words of sentences",
    "retrieve": "answer questions from a knowledge base",
}


def served_tasks() -> dict[str, ModuleType]:
    """The module api.py of every task that has one, by the name of the task."""
    return {name: import_module(f"regard.tasks.{name}.api") for name in _HELP}


def api_of(task: str) -> ModuleType:
    """The module api.py of a task."""
    if task not in _HELP:
        raise RunError(f'the task "{task}" has no HTTP API (api.py), so its runs cannot be served')
    return import_module(f"regard.tasks.{task}.api")


def help_of(task: str) -> str:
    """What a task is for."""
    return _HELP[task]
