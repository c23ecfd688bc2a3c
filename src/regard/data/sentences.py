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


def cut(text: str, fits: Callable[[str], bool], together: Callable[[str], bool] | None = None) -> list[str]:
    """Pieces of a text that fit: whole sentences, or parts of a sentence that alone does not fit.

    Neighbours are joined as long as they fit `together`, which may be stricter than what fits alone.
    """
    together = together or fits
    if together(text):
        return [text]
    sentences = split_sentences(text)
    if len(sentences) < 2 and fits(text):
        return [text]
    return list(_pack([piece for sentence in sentences for piece in _parts(sentence, fits)], together))


def _parts(sentence: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """A sentence that fits, or its halves, cut between words; a word that does not fit is cut like any text."""
    words = sentence.split()
    if fits(sentence) or len(sentence) < 2:
        yield sentence
        return
    if len(words) < 2:
        middle = len(sentence) // 2
        halves = [sentence[:middle], sentence[middle:]]
    else:
        middle = len(words) // 2
        halves = [" ".join(words[:middle]), " ".join(words[middle:])]
    for half in halves:
        yield from _parts(half, fits)


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
