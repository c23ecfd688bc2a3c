"""Words with marks of the meaning that they express, from which the word alignment of a pair is derived."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Token(NamedTuple):
    """One word of a sentence, with its marks and roles.

    `marks` name the parts of the meaning that the word expresses: a verb in the past has its lexical and its finite
    part ("ate"), a contraction its preposition and its article ("nella"). Two words of a pair are aligned when they
    share a mark. `roles` holds "s", "v", "o": the word belongs to the subject, the verb, the object.
    """

    text: str
    marks: tuple[str, ...]
    roles: str = ""


class Fixed(NamedTuple):
    """A phrase that is translated as a whole: `last/1 week/2` is `la/2 settimana/2 scorsa/1`."""

    english: tuple[tuple[str, tuple[str, ...]], ...]
    italian: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def name(self) -> str:
        """The English words, which identify the phrase."""
        return " ".join(text for text, _ in self.english)


def parse_marked(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """`"la/2 settimana/2"` as words with their marks; words without marks all have the mark "0".

    An elided word keeps its apostrophe: `d'/1 estate/2`.
    """
    pairs = (word.partition("/") for word in text.split())
    return tuple((word, tuple(marks.split(",")) if marks else ("0",)) for word, _, marks in pairs)


def parse_fixed(english: str, italian: str) -> Fixed:
    """A fixed phrase from the marked text of its two sides."""
    return Fixed(parse_marked(english), parse_marked(italian))


def keyed(marks: tuple[str, ...], key: str) -> tuple[str, ...]:
    """Marks that differ from all others in the sentence."""
    return tuple([key + mark for mark in marks])


def render(words: Iterable[tuple[str, tuple[str, ...]]], key: str, roles: str = "") -> list[Token]:
    """Marked words as tokens."""
    return [Token(text, keyed(marks, key), roles) for text, marks in words]


def finish(tokens: list[Token], mark: str) -> None:
    """Capitalise the first word and add the final punctuation mark, if any."""
    text, marks, roles = tokens[0]
    tokens[0] = Token(text[0].upper() + text[1:], marks, roles)
    if mark:
        tokens.append(Token(mark, ("end",)))


def write(tokens: Sequence[Token]) -> str:
    """The sentence as written: spaces between the words, but none after an apostrophe or before a mark."""
    text = " ".join([token.text for token in tokens])
    return text.replace("' ", "'").replace(" .", ".").replace(" ?", "?")


def align(source: Sequence[Token], target: Sequence[Token]) -> tuple[tuple[int, int], ...]:
    """The pairs of positions whose words share a mark, in order of the source."""
    places: dict[str, list[int]] = {}
    for j, (_, marks, _) in enumerate(target):
        for mark in marks:
            places.setdefault(mark, []).append(j)
    links: list[tuple[int, int]] = []
    for i, (_, marks, _) in enumerate(source):
        found = [j for mark in marks for j in places.get(mark, ())]
        links += [(i, j) for j in (sorted(set(found)) if len(marks) > 1 else found)]
    return tuple(links)
