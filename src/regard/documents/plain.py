"""Plain text: every line is a text. Line ends, blank lines, indentation and trailing spaces stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from regard.documents.inline import Node, Piece, read_words
from regard.documents.segment import Draft

_ENDS = re.compile("(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029\t]+)")  # tabs part columns


def parse_plain(source: str, draft: Draft, read: Callable[[str], Iterable[Node]] = read_words) -> list[Piece]:
    """The pieces of a plain text; `read` makes nodes of a line."""
    pieces: list[Piece] = []
    for place, part in enumerate(_ENDS.split(source)):
        pieces += [part] if place % 2 else draft.add(list(read(part)))
    return pieces
