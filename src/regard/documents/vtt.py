"""WebVTT subtitles: the text of cues is translated as in SRT; times, settings, NOTE, STYLE and REGION blocks stay.

A cue is an optional identifier, a line with times and settings, and text up to a blank line
(https://www.w3.org/TR/webvtt1/). Class, voice and language spans (<c.loud>, <v Ann>, <lang en>) stay around the
translated words; time stamps inside a cue stay between them.
"""

from __future__ import annotations

import re
from functools import partial

from regard.documents.html import escape_text
from regard.documents.markup import Piece, read_tags
from regard.documents.segment import Draft
from regard.documents.subtitles import Cue, add_cues, make_cue
from regard.errors import CorpusError

_SIGNATURE = re.compile(r"WEBVTT(?=[ \t\r\n]|\Z)")
_LINE = re.compile(r"[^\r\n]*+(?:\r\n|\n|\r)|[^\r\n]++")
_TIME = r"((?:\d{2,6}:)?[0-5]\d:[0-5]\d\.\d{3})"
_TIMES = re.compile(rf"[ \t]*{_TIME}[ \t]+-->[ \t]+{_TIME}(?=[ \t\r\n]|\Z)")
_MARKUP = re.compile(  # line breaks, spans, time stamps (tags without a name), entities
    r"(?<![ \t])[ \t]*+[\r\n]\s*"
    r"|<(?P<slash>/?)(?P<name>[a-z]*)[^<>]*(?P<single>)>"
    r"|&(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});"
)


def parse(source: str, draft: Draft, name: str) -> list[Piece]:
    if not source.strip():
        return [source]
    if not _SIGNATURE.match(source):
        raise CorpusError(name, "not a WebVTT file: the first line must be WEBVTT; add it", line=1)
    cues: list[Cue] = []
    head: list[str] = []  # all source since the last cue
    lines = _LINE.findall(source)[::-1]  # in reverse order: `pop` returns the next line
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
    return [*add_cues(cues, draft, partial(read_tags, markup=_MARKUP), escape_text), "".join(head)]
