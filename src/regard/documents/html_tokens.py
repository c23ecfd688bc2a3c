"""HTML as a sequence of tokens that together are the source, character for character.

The standard library's parser is not used: it raises on some malformed declarations, takes quadratic time over unclosed
tags, and does not say where everything stood. This one reads as a browser does as far as texts are concerned, takes
linear time over any input, and raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["text", "open", "close", "single", "other"]


def names(text: str) -> frozenset[str]:
    """A set of names."""
    return frozenset(text.split())


VOID = names("area base br col embed hr img input link meta param source track wbr")
_RAW_TEXT = names("script style textarea xmp iframe noembed noframes title")

# A quotation mark matters after "=" only, and only if it is closed. Nothing here ever goes back (the second plus).
_TAG = re.compile(r"""</?([a-zA-Z][^\s/>]*+)(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""")
_PLAIN_TAG = re.compile(r"</?([a-zA-Z][^\s/<>]*+)[^<>]*+>")
_TAG_START = re.compile(r"</?[a-zA-Z]")


class Token(NamedTuple):
    """A piece of the source."""

    kind: Kind
    """`single` is a tag that encloses nothing; `other` a comment, a declaration, or what is no text, as a script."""
    raw: str
    name: str = ""
    """Of a tag, in lower case."""


def read_tokens(source: str) -> Iterator[Token]:
    """All of the source, in order."""
    tag, last = _TAG, source.rfind(">")
    said = at = 0  # text has been given up to `said`; the next "<" is looked for from `at`
    while (at := source.find("<", at)) >= 0:
        if source.startswith("<!--", at):
            token = Token("other", _until(source, at, "-->", at + 2))
        elif source.startswith(("<!", "<?"), at):
            token = Token("other", _until(source, at, ">", at + 2))
        elif at > last:
            break
        elif match := tag.match(source, at):
            token = _tag_token(match)
        elif tag is _TAG and _TAG_START.match(source, at):
            tag = _PLAIN_TAG  # a tag that swallows the rest of the page: from here on quotation marks mean nothing
            continue
        elif source.startswith("</", at) and not _TAG_START.match(source, at):
            token = Token("other", _until(source, at, ">", at + 2))
        else:
            at += 1
            continue
        if said < at:
            yield Token("text", source[said:at])
        yield token
        said = at = at + len(token.raw)
        if token.kind == "open" and token.name in _RAW_TEXT:
            content = _content(source, at, token.name)
            if content:
                yield Token("text" if token.name == "title" else "other", content)
            said = at = at + len(content)
    if said < len(source):
        yield Token("text", source[said:])


def _until(source: str, start: int, mark: str, search_from: int) -> str:
    """The source from `start` up to a mark and with it, or to the end."""
    end = source.find(mark, search_from)
    return source[start:] if end < 0 else source[start : end + len(mark)]


def _tag_token(match: re.Match[str]) -> Token:
    raw, name = match.group(), match[1].lower()
    if raw.startswith("</"):
        return Token("close", raw, name)
    return Token("single" if name in VOID or raw.endswith("/>") else "open", raw, name)


def _content(source: str, start: int, name: str) -> str:
    """What stands in an element whose tags are no tags."""
    end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, start)
    return source[start : end.start()] if end else source[start:]


# ---------------------------------------------------------------------------------------------------------------------
# Attributes

_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'<>=]++)))?+""")


class Attribute(NamedTuple):
    """An attribute of a tag, and where its value stands."""

    name: str
    value: str
    start: int
    end: int
    quoted: bool


def read_attributes(raw: str) -> Iterator[Attribute]:
    """The attributes of a start tag, in order."""
    for match in _ATTRIBUTE.finditer(raw, re.match(r"<[^\s/>]*", raw).end()):  # type: ignore[union-attr]
        group = next((group for group in (2, 3, 4) if match[group] is not None), 0)
        value = match[group] if group else ""
        start = match.start(group) if group else match.end()
        yield Attribute(match[1].lower(), value, start, start + len(value), group in (2, 3))
