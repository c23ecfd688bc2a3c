"""The inspection of a document: the verdict of a run with all that was looked at, for the page and for JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard import __version__
from regard.durable import write_atomically
from regard.pages import render_page
from regard.run import Run
from regard.tasks.classify import load
from regard.tasks.inspect_page import refuse_other


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


def write_document_page(data: dict[str, Any], path: str | Path, *, force: bool = False) -> Path:
    """Write the page. A file that is there already is replaced if it is such a page itself, or by force."""
    path = Path(path)
    refuse_other(path, force=force)
    write_atomically(path, render_page("document", data).encode())
    return path
