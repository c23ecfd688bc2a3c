"""From raw input to an answer object: each task joins data, model, search and loss."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RunError
from regard.run import Run

# The door to a trained run, whatever it was trained for.


if TYPE_CHECKING:
    from typing import TypeAlias

    from regard.tasks.chat.chatbot import Chatbot
    from regard.tasks.classify.classifier import Classifier
    from regard.tasks.retrieve.retriever import Retriever
    from regard.tasks.tag.tagger import Tagger
    from regard.tasks.translate.translator import Translator

    Opened: TypeAlias = Translator | Chatbot | Classifier | Tagger | Retriever

HOMES = {
    "translate": "regard.tasks.translate.translator",
    "chat": "regard.tasks.chat.chatbot",
    "classify": "regard.tasks.classify.classifier",
    "retrieve": "regard.tasks.retrieve.retriever",
    "tag": "regard.tasks.tag.tagger",
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
