"""The inspection of a document: the verdict of a run with all that was looked at, for the page and for JSON."""

from __future__ import annotations

from typing import Any

from regard import __version__
from regard.run import Run
from regard.tasks.classify import load


def inspect_document(run: Run, text: str) -> dict[str, Any]:
    """Label and shade one document."""
    [verdict] = load(run.folder).classify([text], explain=True)
    title = " and ".join(verdict.labels) or "no label"
    return {
        "title": title[:1].upper() + title[1:],
        "run": run.folder.name,
        "version": __version__,
        "model": {"arch": run.recipe.model.arch},
        "verdict": verdict.as_dict(),
    }
