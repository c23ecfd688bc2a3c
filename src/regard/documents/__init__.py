"""Documents: split a file into texts to translate, and put the translations back. Everything else stays as it was.

document = parse("page.html", content)
answers = translate(document.texts, align=document.needs_alignment)
content = document.rebuild(answers)

A format is a module that `regard.registry.FORMATS` names, with
    parse(source, draft, name) -> list[Piece]          `draft.add` collects each text; `name` is for error messages
    BINARY = True                                      optional: `parse` gets bytes instead of text
    finish(made) -> str | bytes                        optional: makes the file from the text with all translations
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.errors import CorpusError, SettingsError, nearest
from regard.registry import FORMATS

if TYPE_CHECKING:
    from regard.documents.markup import Answer, Piece
    from regard.documents.segment import Draft

__all__ = ["FORMAT_NAMES", "Document", "format_of", "parse"]

FORMAT_NAMES = tuple(ending.removeprefix(".") for ending in FORMATS)
"""Names of the formats: file endings without the dot."""


class Document:
    """A parsed document. Translate all its `texts`, and give the translations to `rebuild` in the same order."""

    def __init__(self, pieces: Sequence[Piece], draft: Draft, format_module: Any, *, as_bytes: bool):
        self._pieces, self._segments = pieces, draft.segments
        self._format, self._as_bytes = format_module, as_bytes

    @property
    def texts(self) -> list[str]:
        """The texts to translate: one for each paragraph, table cell, message or the like."""
        return [segment.marked.text for segment in self._segments]

    @property
    def needs_alignment(self) -> bool:
        """Whether the translations should have word alignments, so that tags inside texts are placed correctly."""
        return any(segment.marked.needs_alignment for segment in self._segments)

    def rebuild(self, answers: Sequence[Answer]) -> str | bytes:
        """The translated document, as str or bytes like the source. `answers` has one translation per text.

        An empty translation leaves its text untranslated.
        """
        from regard.documents.markup import fill

        if len(answers) != len(self._segments):
            raise ValueError(f"{len(answers)} answers for {len(self._segments)} texts; give one answer per text")
        made: str | bytes = fill(self._pieces, answers)
        if finish := getattr(self._format, "finish", None):
            made = finish(made)
        return made.encode("utf-8", "surrogatepass") if self._as_bytes and isinstance(made, str) else made

    def lost(self, answers: Sequence[Answer]) -> list[tuple[str, ...]]:
        """For each text, the URLs, placeholders, code and numbers that are missing from its translation.

        `rebuild` adds these to the translation again, except numbers. `answers` has one translation per text.
        """
        return [segment.lost(answer) for segment, answer in zip(self._segments, answers, strict=True)]


def format_of(name: str) -> str:
    """The name of a document format, e.g. "html". `name` is a file name with a known ending, or a format."""
    lowered = name.lower()
    if lowered in FORMAT_NAMES:
        return lowered
    ending = os.path.splitext(lowered)[1] or lowered
    if ending in FORMATS:
        return ending.removeprefix(".")
    if ending != lowered or ending.startswith("."):
        raise SettingsError(f"{name}: unknown document format; known endings: {', '.join(FORMATS)}")
    known = ", ".join(FORMAT_NAMES)
    raise SettingsError(f'there is no document format "{name}"{nearest(name, FORMAT_NAMES)}; choose from {known}')


def parse(name: str, content: str | bytes, *, format: str = "") -> Document:
    """Split a document into texts to translate. Its format is `format` or, if that is empty, the ending of `name`."""
    from regard.documents.segment import Draft

    module = import_module(FORMATS[f".{format_of(format or name)}"])
    draft, as_bytes = Draft(), not isinstance(content, str)
    if getattr(module, "BINARY", False):
        if not as_bytes:
            raise CorpusError(name, "this format is binary; pass the content as bytes, not as str")
        return Document(module.parse(content, draft, name), draft, module, as_bytes=True)
    try:
        source = content if isinstance(content, str) else content.decode()
    except UnicodeDecodeError as error:
        byte, line = error.object[error.start], error.object.count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte 0x{byte:02x}); convert the file, e.g. iconv -f latin1 -t utf-8"
        raise CorpusError(name, problem, line=line) from None
    mark = "\ufeff" if source.startswith("\ufeff") else ""  # byte order mark
    return Document([mark, *module.parse(source[len(mark) :], draft, name)], draft, module, as_bytes=as_bytes)
