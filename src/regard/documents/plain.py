"""Plain text: every line is a text. Line ends, blank lines, indentation and trailing spaces stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from regard.documents.markup import Node, Piece, read_words
from regard.documents.segment import Draft

BINARY = False

_SEPARATORS = re.compile("(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029\t]+)")  # a tab separates columns


def parse(source: str, draft: Draft, name: str) -> list[Piece]:
    """Split a plain text into pieces."""
    return split_lines(source, draft, read_words)


def split_lines(source: str, draft: Draft, read: Callable[[str], Iterable[Node]]) -> list[Piece]:
    """Split text into pieces, with one text per line; `read` turns a line into nodes."""
    pieces: list[Piece] = []
    for place, part in enumerate(_SEPARATORS.split(source)):
        pieces += [part] if place % 2 else draft.add(list(read(part)))
    return pieces
