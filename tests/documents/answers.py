"""Translations for tests: as a translator would give them, but known beforehand."""

from __future__ import annotations

import random
from dataclasses import dataclass

from regard.documents import Document
from regard.text.words import words


@dataclass(frozen=True)
class Links:
    """An alignment."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Said:
    """A translation."""

    text: str
    alignment: Links | None = None


def same(document: Document) -> list[Said]:
    """Every text as its own translation."""
    return [Said(text) for text in document.texts]


def said(source: str, target: str, links: str) -> Said:
    """A translation with links in the Pharaoh form, "0-0 1-2"."""
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    return Said(target, Links(_texts(source), _texts(target), tuple(pairs)))  # type: ignore[arg-type]


def shuffled(source: str, seed: int) -> Said:
    """The words of a text in another order, in capitals, and which is which."""
    found = list(_texts(source))
    order = list(range(len(found)))
    random.Random(seed).shuffle(order)
    target = " ".join(found[place].swapcase() for place in order)
    links = tuple(sorted((place, at) for at, place in enumerate(order)))
    made = _texts(target)
    return Said(target, Links(tuple(found), made, links) if len(made) == len(found) else None)


def _texts(text: str) -> tuple[str, ...]:
    return tuple(word.text for word in words(text))
