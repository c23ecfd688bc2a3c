"""WebVTT subtitles: the text of cues is translated as in SRT; times, settings, NOTE, STYLE and REGION blocks stay.

A cue is an optional identifier, a line with times and settings, and text up to a blank line
(https://www.w3.org/TR/webvtt1/). Class, voice and language spans (<c.loud>, <v Ann>, <lang en>) stay around the
translated words; time stamps inside a cue stay between them.
"""

from __future__ import annotations

import re
from html import unescape

from regard.documents.html import escape_text
from regard.documents.markup import Break, Fixed, Node, Piece, Tree, Words, read_words
from regard.documents.segment import Draft
from regard.documents.subtitles import Cue, add_cues, make_cue
from regard.errors import CorpusError

BINARY = False

_SIGNATURE = re.compile(r"WEBVTT(?=[ \t\r\n]|\Z)")
_LINE = re.compile(r"[^\r\n]*+(?:\r\n|\n|\r)|[^\r\n]++")
_TIME = r"((?:\d{2,6}:)?[0-5]\d:[0-5]\d\.\d{3})"
_TIMES = re.compile(rf"[ \t]*{_TIME}[ \t]+-->[ \t]+{_TIME}(?=[ \t\r\n]|\Z)")
_MARKUP = re.compile(
    r"(?P<break>(?<![ \t])[ \t]*+[\r\n]\s*)"
    r"|(?P<tag><(?P<slash>/?)(?P<name>[a-z]*)[^<>]*>)"
    r"|(?P<entity>&(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});)"
)


def parse(source: str, draft: Draft, name: str) -> list[Piece]:
    """Split a subtitle file into pieces."""
    if not source.strip():
        return [source]
    if not _SIGNATURE.match(source):
        raise CorpusError(name, "not WebVTT: the first line must be WEBVTT", line=1)
    cues: list[Cue] = []
    head: list[str] = []  # all source since the last cue
    lines = _LINE.findall(source)[::-1]  # the next one is last
    while lines:
        head.append(lines.pop())
        if not (times := _TIMES.match(head[-1])):
            continue
        payload = []
        while lines and lines[-1].strip() and "-->" not in lines[-1]:
            payload.append(lines.pop())
        cues.append(make_cue("".join(head), "".join(payload), times[1], times[2]))
        head = []
    # Without ">", an escaped word cannot form an arrow, which would end the cue.
    return [*add_cues(cues, draft, _read_text, escape_text), "".join(head)]


def _read_text(text: str) -> list[Node]:
    """The nodes of a cue: words, entities, spans, and time stamps, which enclose nothing."""
    tree, at = Tree(), 0
    for match in _MARKUP.finditer(text):
        tree.add(*read_words(text[at : match.start()]))
        raw, at = match.group(), match.end()
        if match["break"]:
            tree.add(Break(raw, required=False))
        elif match["entity"]:
            tree.add(Words(raw, unescape(raw)))
        elif not match["name"]:
            tree.add(Fixed(raw))
        elif match["slash"]:
            tree.close(match["name"], raw)
        else:
            tree.open(match["name"], raw)
    tree.add(*read_words(text[at:]))
    return tree.finish()
