"""What `regard inspect` shows of a classifier: a document with words and sentences shaded by attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regard.run import Run
from regard.tasks.classify.classifier import inspect_document
from regard.terminal import text_or_file as read

__all__ = ["OPTIONS", "PAGE", "inspect", "read", "summary"]

PAGE = "document"
OPTIONS: tuple[str, ...] = ()


def inspect(run: Run, text: str, *, log: Callable[[str], None] = lambda doing: None) -> dict[str, Any]:
    """Label and shade one document."""
    log("loading the model")
    return inspect_document(run, text)


def summary(data: dict[str, Any]) -> str:
    """The labels."""
    return str(data["title"])
