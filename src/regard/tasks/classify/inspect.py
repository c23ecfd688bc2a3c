"""The content of `regard inspect` for a classifier: a document with words and sentences shaded by attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regard import __version__
from regard.run import Run
from regard.tasks.classify.classifier import Classifier, load
from regard.terminal import text_or_file as read

__all__ = ["OPTIONS", "PAGE", "inspect", "read", "summary"]

PAGE = "document"
OPTIONS: tuple[str, ...] = ()


def inspect(
    run: Run, text: str, classifier: Classifier | None = None, *, log: Callable[[str], None] = lambda doing: None
) -> dict[str, Any]:
    """Classify one document, and return the data of its page: labels, probabilities, weights of words and sentences.

    `classifier`: the model of `run`, if it is already loaded. `log` receives progress messages.
    """
    log("loading the model")
    [found] = (classifier or load(run.folder)).classify([text], explain=True)
    title = " and ".join(found.labels) or "No label"
    return {
        "title": title,
        "run": run.folder.name,
        "version": __version__,
        "model": {"arch": run.recipe.model.arch},
        "verdict": found.as_dict(),
    }


def summary(data: dict[str, Any]) -> str:
    return str(data["title"])
