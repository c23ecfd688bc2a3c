"""SubRip subtitles (SRT): numbers and times stay. A sentence that continues over several cues is one text.

A cue is one subtitle with its times. The translation of a sentence is divided among the cues of the sentence: each cue
gets the words that translate its source words. Dashes before speakers and music notes are not translated. Other
subtitle formats use `add_cues`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from regard.documents.markup import Break, Element, Fixed, Node, Piece, Words, mark, read_tags
from regard.documents.segment import Draft, Escape
from regard.errors import CorpusError

_TIME = r"\d{1,3}:\d{1,2}:\d{1,2}[,.]\d{1,3}"
_HEAD = re.compile(rf"(?:^[ \t]*\d+[ \t]*\r?\n)?^[ \t]*({_TIME})[ \t]*-->[ \t]*({_TIME})[^\r\n]*", re.MULTILINE)
_DASH = r"[-–—]++(?![\d>])"  # before a number it is a minus
_SPEAKER = rf"[^\S\r\n]*(?:(?:<[^<>\r\n]*>|\{{\\[^{{}}\r\n]*\}})[^\S\r\n]*)*(?:{_DASH}|[♪♫])"
_NEXT_SPEAKER = re.compile(rf"(\r\n|\n|\r)(?={_SPEAKER}|[^\S\r\n]*<v[ .\t])")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?+[ \t]++([^<>]*+)>")
_NOTES = re.compile(r"([♪♫]+)")
_DASH_OR_NOTES = re.compile(rf"(^\s*{_DASH}|[♪♫]+)")
_MARKUP = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")

MAX_CUES = 6  # a sentence continues over at most this many cues
MAX_PAUSE = 3.0  # seconds; no sentence continues after a longer pause


@dataclass(frozen=True)
class Cue:
    """One subtitle: its text, the source before (`head`) and after the text (`tail`), and its times in seconds."""

    head: str
    text: str
    tail: str
    start: float
    end: float


def parse(source: str, draft: Draft, name: str) -> list[Piece]:
    heads = list(_HEAD.finditer(source))
    if not heads:
        if not source.strip():
            return [source]
        raise CorpusError(name, "no subtitles found; each needs a line such as 00:00:01,000 --> 00:00:02,500", line=1)
    ends = [head.start() for head in heads[1:]] + [len(source)]
    cues = [
        make_cue(head.group(), source[head.end() : end], head[1], head[2])
        for head, end in zip(heads, ends, strict=True)
    ]
    return [source[: heads[0].start()], *add_cues(cues, draft)]


def make_cue(head: str, body: str, start: str, end: str) -> Cue:
    """Make a cue from the source before its text (`head`), its text with white space around it, and its times.

    `start` and `end` are times such as "01:02:03,500".
    """
    text = body.strip()
    at = body.find(text)
    return Cue(head + body[:at], text, body[at + len(text) :], _seconds(start), _seconds(end))


def _seconds(time: str) -> float:
    """Convert a time such as "01:02:03,500" or "02:03.500" to seconds."""
    *whole, seconds = time.replace(",", ".").split(":")
    return sum(int(part) * 60**place for place, part in enumerate(reversed(whole), 1)) + float(seconds)


def add_cues(
    cues: Iterable[Cue], draft: Draft, read: Callable[[str], list[Node]] = read_tags, escape: Escape = str
) -> Iterator[Piece]:
    """Yield the cues as strings that stay unchanged and slots for translations; `draft` collects the texts.

    `read` parses the markup of a cue's text; `escape` converts a translated word to the format of the file.
    """
    for group in _sentences(cues):
        yield group[0].head
        if len(group) == 1:
            for place, part in enumerate(_NEXT_SPEAKER.split(group[0].text)):  # one text per speaker
                yield from [part] if place % 2 else draft.add(list(_protect(read(part))), escape)
        else:
            nodes = list(_protect(read(group[0].text)))
            for cue, following in pairwise(group):
                nodes += [Break(cue.tail + following.head, required=True), *_protect(read(following.text))]
            yield from draft.add(nodes, escape)
        yield group[-1].tail


def _sentences(cues: Iterable[Cue]) -> Iterator[list[Cue]]:
    """Yield groups of consecutive cues: a group has one cue, or up to MAX_CUES cues that share a sentence."""
    group: list[Cue] = []
    for cue in cues:
        if group and (len(group) == MAX_CUES or not _continues(group[-1], cue)):
            yield group
            group = []
        group.append(cue)
    if group:
        yield group


def _continues(cue: Cue, following: Cue) -> bool:
    """Whether the last sentence of `cue` continues in `following`, by punctuation, case, pause and speaker."""
    if following.start - cue.end > MAX_PAUSE or any(_NEXT_SPEAKER.search(one.text) for one in (cue, following)):
        return False
    voices = _VOICE.findall(following.text)
    if voices and voices != _VOICE.findall(cue.text):
        return False
    before, after = (_MARKUP.sub("", one.text).strip() for one in (cue, following))
    if not before or not after or re.match(_SPEAKER, after):
        return False
    open_end = before.endswith(("...", "…")) or not re.search(r"[.!?:。！？♪][\"'”’»)\]]*$", before)
    first = next((letter for letter in after if letter.isalpha()), "")
    return open_end and (first.islower() or before.endswith(","))


def _protect(nodes: Sequence[Node], first: bool = True) -> Iterator[Node]:
    """Yield the nodes with music notes as `Fixed` nodes and, if `first`, also a dash before the first word."""
    for node in nodes:
        if isinstance(node, Element):
            yield replace(node, inside=tuple(_protect(node.inside, first)))
        elif isinstance(node, Words) and node.raw == node.text:  # not an entity
            pieces = (_DASH_OR_NOTES if first else _NOTES).split(node.raw)
            for place, piece in enumerate(pieces):
                if piece:
                    yield Fixed(piece, visible=True) if place % 2 else Words(piece, piece)
        else:
            yield node
        first = first and not mark([node]).text
