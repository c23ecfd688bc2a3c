"""What a translation must not change: addresses and placeholders word for word, numbers by their digits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_KINDS = (
    # A web address, without the punctuation of the sentence that it ends. In HTML, what follows an entity is not its.
    r"(?:https?://|ftp://|www\.)(?:(?!&(?:nbsp|lt|gt|quot|\#))[^\s<>\"'`|])*(?:(?!&)[^\s<>\"'`|.,;:!?)\]}*_])",
    r"(?<![\w.+-])[\w.+-]{1,64}+@\w[\w-]*(?:\.\w[\w-]*)+",  # an e-mail address
    r"%\(\w+\)[-+\#0]*\d*(?:\.\d+)?[a-zA-Z]",  # %(name)s
    r"%(?:\d+\$)?[-+\#0]*\d*(?:\.\d+)?(?:hh|ll|[hlLzjtq])?[diouxXeEfFgGcrsap@](?![a-zA-Z])",  # %s %5.2f %1$s %ld
    r"%\d+",  # %1, as in Qt
    r"\{\{[^{}\n]{1,60}\}\}",  # {{ name }}
    r"\$?\{[\w.:!,\[\]<>^+\#-]{0,40}\}",  # {} {0} {name:>8} ${name}
)
FRAGILE = re.compile("|".join(_KINDS))

_INSIDE_NUMBER = re.compile(r"(?<=\d)[\s.,'’](?=\d)")
_NUMBER = re.compile(r"\d{1,40}")


def cut_fragile(text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces; True says that a piece must stay as it is."""
    at = 0
    for match in FRAGILE.finditer(text):
        if at < match.start():
            yield text[at : match.start()], False
        yield match.group(), True
        at = match.end()
    if at < len(text):
        yield text[at:], False


def missing_pieces(kept: list[str], text: str) -> list[str]:
    """Those pieces that `text` does not hold as often as they are wanted."""
    wanted = Counter(kept)
    return [piece for piece, times in wanted.items() if text.count(piece) < times]


def missing_numbers(source: str, text: str) -> list[str]:
    """Numbers of `source` that `text` does not hold. Separators may differ: 1,000.5 and 1.000,5 are one number."""
    return list((_numbers(source) - _numbers(text)).elements())


def _numbers(text: str) -> Counter[str]:
    return Counter(str(int(number)) for number in _NUMBER.findall(_INSIDE_NUMBER.sub("", text)))
