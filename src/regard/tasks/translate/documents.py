"""Translation of documents: the texts are translated in batches, everything else is kept."""

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
    """Addresses, placeholders and numbers that translations left out; all but numbers were put back."""


def translate_document(
    document: Document,
    translate: Callable[[list[str]], list[Translation]],
    advance: Callable[[int], None] = lambda texts: None,
) -> TranslatedDocument:
    """Translate the texts of a document, equal ones once. `advance` is called with the number of texts done."""
    translations: dict[str, Translation] = {}
    for chunk in chunks(dict.fromkeys(document.texts)):
        translations |= zip(chunk, translate(chunk), strict=True)
        advance(len(chunk))
    found = [translations[text] for text in document.texts]
    lost = [piece for pieces in document.lost(found) for piece in pieces]
    return TranslatedDocument(document.rebuild(found), lost)


def looks_back(model: ModelSettings) -> bool:
    """Whether a model has cross-attention, which word alignment needs."""
    return model.attends
