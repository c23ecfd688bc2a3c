"""Documents: text in some format to texts to translate, and back. No model and no translation happens here.

document = parse("page.html", content)
answers = translate(document.texts, align=document.needs_alignment)
content = document.rebuild(answers)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, get_args

from regard.documents.document import Document
from regard.errors import CorpusError, SettingsError, nearest

__all__ = ["FORMATS", "SUFFIXES", "Document", "Format", "format_of", "parse"]

Format = Literal["text", "html", "markdown", "srt", "po"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: Mapping[str, Format] = {
    ".txt": "text",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".srt": "srt",
    ".po": "po",
    ".pot": "po",
}


def format_of(name: str) -> Format:
    """The format that a name or the suffix of a file says."""
    lowered = name.lower()
    for known in FORMATS:
        if lowered == known:
            return known
    suffix = os.path.splitext(lowered)[1] or lowered
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if suffix != lowered or suffix.startswith("."):
        raise SettingsError(f"{name}: documents of this kind are not known; known are {', '.join(SUFFIXES)}")
    raise SettingsError(f'there is no document format "{name}"{nearest(name, FORMATS)}; there are {", ".join(FORMATS)}')


def parse(name: str, content: str | bytes, *, format: Format | None = None, attributes: bool = True) -> Document:
    """Take a document apart. `name` is a format, or the name of a file, whose suffix tells the format if none is given.

    `attributes`: in HTML, attributes that people read (alt, title, placeholder, aria-label) are texts as well.
    """
    kind = format or format_of(name)
    from regard.documents import html, markdown, plain, po, srt
    from regard.documents.segment import Draft

    source = content if isinstance(content, str) else _decode(name, content)
    mark = "\ufeff" if source.startswith("\ufeff") else ""  # a byte order mark is no text
    source, draft = source[len(mark) :], Draft()
    if kind == "html":
        pieces = html.parse_html(source, draft, attributes=attributes)
    elif kind == "markdown":
        pieces = markdown.parse_markdown(source, draft)
    elif kind == "srt":
        pieces = srt.parse_srt(source, draft, name)
    elif kind == "po":
        pieces = po.parse_po(source, draft, name)
    else:
        pieces = plain.parse_plain(source, draft)
    return Document(kind, [mark, *pieces], draft, as_bytes=not isinstance(content, str))


def _decode(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{content[error.start]:02x}"
        problem = f"not UTF-8 ({byte}); convert the file, e.g. iconv -f latin1 -t utf-8"
        raise CorpusError(name, problem, line=line) from None
