"""A document in, a document out: its texts are translated many at a time, everything else stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from regard.config import ModelSettings
from regard.documents import Document
from regard.tasks.translate.output import chunks
from regard.tasks.translate.translation import Translation


class TranslatedDocument(NamedTuple):
    """A translated document."""

    content: str | bytes
    lost: list[str]
    """Addresses, placeholders and numbers that a translation left out; all but numbers were put back."""


def translate_document(
    document: Document,
    translate: Callable[[list[str]], list[Translation]],
    advance: Callable[[int], None] = lambda texts: None,
) -> TranslatedDocument:
    """Translate the texts of a document, equal ones once. `advance` hears how many are done."""
    answers: dict[str, Translation] = {}
    for chunk in chunks(dict.fromkeys(document.texts)):
        answers |= zip(chunk, translate(chunk), strict=True)
        advance(len(chunk))
    found = [answers[text] for text in document.texts]
    lost = [piece for pieces in document.lost(found) for piece in pieces]
    return TranslatedDocument(document.rebuild(found), lost)


def looks_back(model: ModelSettings) -> bool:
    """Whether a model attends to the source; without that nothing says which words render which."""
    return model.attends
