"""SubRip subtitles: numbers and times stay. A sentence that runs over several cues is translated as one.

Its translation is spread over the same cues again: a cue ends where the words that render its own words end. Dashes
before speakers and notes of music are not translated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from regard.documents.markup import Break, Element, Fixed, Node, Piece, Words, mark, read_tags
from regard.documents.segment import Draft
from regard.errors import CorpusError

BINARY = False

_TIME = r"\d{1,3}:\d{1,2}:\d{1,2}[,.]\d{1,3}"
_HEAD = re.compile(rf"(?:^[ \t]*\d+[ \t]*\r?\n)?^[ \t]*({_TIME})[ \t]*-->[ \t]*({_TIME})[^\r\n]*", re.MULTILINE)
_DASH = r"[-–—]++(?![\d>])"  # before a number it is a minus
_SPEAKS = rf"[^\S\r\n]*(?:(?:<[^<>\r\n]*>|\{{\\[^{{}}\r\n]*\}})[^\S\r\n]*)*(?:{_DASH}|[♪♫])"
_ANOTHER_SPEAKS = re.compile(rf"(?:\r\n|\n|\r)(?={_SPEAKS})")
_NOTES = re.compile(r"([♪♫]+)")
_DASH_OR_NOTES = re.compile(rf"(^\s*{_DASH}|[♪♫]+)")
_MARKUP = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")

MOST_CUES = 6
"""A sentence is not looked for beyond so many cues."""
LONGEST_PAUSE = 3.0
"""Seconds after which another sentence begins in any case."""


@dataclass(frozen=True)
class _Cue:
    """A cue: what stands before its text, the text, and what stands after; and its times in seconds."""

    head: str
    text: str
    tail: str
    start: float
    end: float

    @property
    def said(self) -> str:
        """The text without its markup."""
        return _MARKUP.sub("", self.text).strip()


def parse(source: str, draft: Draft, name: str) -> list[Piece]:
    """The pieces of a subtitle file."""
    heads = list(_HEAD.finditer(source))
    if not heads:
        if not source.strip():
            return [source]
        raise CorpusError(name, "no subtitle in it; one begins with a line as 00:00:01,000 --> 00:00:02,500", line=1)
    pieces: list[Piece] = [source[: heads[0].start()]]
    for group in _sentences(_cues(source, heads)):
        pieces.append(group[0].head)
        pieces += _speakers(group[0], draft) if len(group) == 1 else draft.add(list(_joined(group)))
        pieces.append(group[-1].tail)
    return pieces


def _cues(source: str, heads: list[re.Match[str]]) -> Iterator[_Cue]:
    ends = [match.start() for match in heads[1:]] + [len(source)]
    for match, end in zip(heads, ends, strict=True):
        body = source[match.end() : end]
        text = body.strip()
        start = body.find(text) if text else len(body)
        tail = body[start + len(text) :]
        yield _Cue(match.group() + body[:start], text, tail, _seconds(match[1]), _seconds(match[2]))


def _seconds(time: str) -> float:
    hours, minutes, seconds = time.replace(",", ".").split(":")
    return 3600 * int(hours) + 60 * int(minutes) + float(seconds)


def _sentences(cues: Iterator[_Cue]) -> Iterator[list[_Cue]]:
    """Cues, together where one sentence runs over them."""
    group: list[_Cue] = []
    for cue in cues:
        if group and (len(group) == MOST_CUES or not _goes_on(group[-1], cue)):
            yield group
            group = []
        group.append(cue)
    if group:
        yield group


def _goes_on(cue: _Cue, following: _Cue) -> bool:
    """Whether a sentence runs from one cue into the next: no end before, a small letter after."""
    if following.start - cue.end > LONGEST_PAUSE or any(_ANOTHER_SPEAKS.search(one.text) for one in (cue, following)):
        return False
    before, after = cue.said, following.said
    if not before or not after or re.match(_SPEAKS, after):
        return False
    open_end = before.endswith(("...", "…")) or not re.search(r"[.!?:。！？♪][\"'”’»)\]]*$", before)
    first = next((letter for letter in after if letter.isalpha()), "")
    return open_end and (first.islower() or before.endswith(","))


def _speakers(cue: _Cue, draft: Draft) -> Iterator[Piece]:
    """A cue of its own; where several speak, what each says is a text."""
    at = 0
    for end in _ANOTHER_SPEAKS.finditer(cue.text):
        yield from draft.add(_read(cue.text[at : end.start()]))
        yield end.group()
        at = end.end()
    yield from draft.add(_read(cue.text[at:]))


def _joined(group: list[_Cue]) -> Iterator[Node]:
    yield from _read(group[0].text)
    for cue, following in pairwise(group):
        yield Break(cue.tail + following.head, must=True)
        yield from _read(following.text)


def _read(text: str) -> list[Node]:
    """What one says. The dash before it, and notes of music, are no words: they keep their place."""
    return list(_set_aside(read_tags(text), True))


def _set_aside(nodes: Sequence[Node], first: bool) -> Iterator[Node]:
    """The nodes with notes, and a dash before which there is no word (`first`), as things that stay."""
    for node in nodes:
        if isinstance(node, Element):
            yield replace(node, inside=tuple(_set_aside(node.inside, first)))
        elif isinstance(node, Words):
            pieces = (_DASH_OR_NOTES if first else _NOTES).split(node.raw)
            for place, piece in enumerate(pieces):
                if piece:
                    yield Fixed(piece, spoken=True) if place % 2 else Words(piece, piece)
        else:
            yield node
        first = first and not mark([node]).text
