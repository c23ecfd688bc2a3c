"""The door to a trained run, whatever it was trained for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RunError
from regard.run import Run

if TYPE_CHECKING:
    from typing import TypeAlias

    from regard.tasks.chat import Chatter
    from regard.tasks.classify import Classifier
    from regard.tasks.retrieve import Retriever
    from regard.tasks.tag import Tagger
    from regard.tasks.translate import Translator

    Opened: TypeAlias = Translator | Chatter | Classifier | Tagger | Retriever

HOMES = {
    "translate": "regard.tasks.translate",
    "chat": "regard.tasks.chat",
    "classify": "regard.tasks.classify",
    "retrieve": "regard.tasks.retrieve",
    "tag": "regard.tasks.tag",
}
"""Modules whose `load(run)` opens a run of each task; imported when first used."""


def open_run(run: Run | str | Path, *others: str | Path) -> Opened:
    """A run ready for use: a translator, a chatter, a classifier, ... Several translators become an ensemble."""
    opened = run if isinstance(run, Run) else Run.open(run)
    task = opened.recipe.data.task
    if task not in HOMES:
        raise RunError(f'{opened.folder}: made for the task "{task}", which this version cannot open')
    made: Opened = import_module(HOMES[task]).load(opened.folder, *others)
    return made


load = open_run
"""As `regard.load`."""
