"""Sentences of a longer text: what a line that is too long for a model is cut into."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

# A mark that ends a sentence, what closes after it, and the space before a letter that is not small. Chinese and
# Japanese marks need no space.
_END = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+(?=[^\sa-zà-öø-ÿ])|(?<=[。！？])")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without the spaces between them. An abbreviation before a name is cut as well."""
    pieces, start = [], 0
    for match in _END.finditer(text):
        end = match.end()
        pieces.append(text[start:end].strip())
        start = end
    return [piece for piece in [*pieces, text[start:].strip()] if piece]


def cut(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Pieces of a text that fit: runs of whole sentences; of words, where a sentence alone does not fit."""
    if fits(text):
        return [text]
    return list(_pack([piece for sentence in split_sentences(text) for piece in _words(sentence, fits)], fits))


def _words(sentence: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """A sentence that fits, or its halves, cut between words; a word that does not fit is left as it is."""
    words = sentence.split()
    if fits(sentence) or len(words) < 2:
        yield sentence
        return
    middle = len(words) // 2
    for half in (words[:middle], words[middle:]):
        yield from _words(" ".join(half), fits)


def _pack(pieces: list[str], fits: Callable[[str], bool]) -> Iterator[str]:
    """Neighbours joined as long as they fit."""
    run = ""
    for piece in pieces:
        joined = f"{run} {piece}" if run else piece
        if run and not fits(joined):
            yield run
            run = piece
        else:
            run = joined
    if run:
        yield run
