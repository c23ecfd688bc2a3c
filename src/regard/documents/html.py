"""HTML pages and fragments: block elements separate texts; inline tags stay around the translated words.

The standard library's parser is not used: it raises on some malformed declarations, takes quadratic time over unclosed
tags, and does not give the position of every token. The tokens that this module reads are exactly the source if they
are joined. Reading takes linear time, texts are the same as in a browser, and no input raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from html import escape, unescape
from typing import Literal, NamedTuple

from regard.documents.markup import Element, Fixed, Piece, Raw, Tree, Words, as_pieces, fixed, read_words
from regard.documents.segment import Draft

Kind = Literal["text", "open", "close", "single", "other"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Elements that are not named here are inline, as in a browser. Buttons and options are separate texts.
_BLOCKS = _names(
    "html head body title base link meta address article aside blockquote button caption center col colgroup dd "
    "details dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 header "
    "hgroup hr legend li main menu nav noscript ol optgroup option p param pre search section select summary table "
    "tbody td template tfoot th thead tr ul"
)
_CODE = _names("code kbd samp tt var")
# Inline elements that stay unchanged with all their content.
_WHOLE = _names("script style textarea xmp iframe noembed noframes svg math object video audio canvas map")
_ENDED_BY_NEXT = _names("p li dt dd option tr td th")
_INVISIBLE = _names("wbr link meta script style")  # these do not separate the words around them

_END = re.compile(r"[.!?:。！？][\"'”’»)]?\s*$")
_TEXT_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")


def parse(source: str, draft: Draft, name: str) -> list[Piece]:
    """Split a page into strings that stay unchanged and slots for translations; `draft` collects the texts.

    Values of attributes that readers see (alt, title and others) are texts too. `name` is not used.
    """
    return _Reader(draft).read(list(read_tokens(source)))


class _Reader:
    """Splits the tokens of a page into unchanged strings and slots for translations; `draft` collects the texts."""

    def __init__(self, draft: Draft):
        self._draft = draft
        self._pieces: list[Piece] = []
        self._tree = Tree()

    def read(self, tokens: list[Token]) -> list[Piece]:
        at = 0
        while at < len(tokens):
            token, start = tokens[at], at
            at += 1
            if token.kind == "text":
                self._tree.add(*read_words(token.raw, unescape))
            elif token.kind == "other":
                self._tree.add(Fixed(token.raw))
            elif token.kind == "open" and _stays_unchanged(token):
                at = _end_of_element(tokens, start)
                self._keep(tokens[start:at])
            else:
                self._read_tag(token)
        self._end_text()
        return self._pieces

    def _read_tag(self, token: Token) -> None:
        name = token.name
        raw = self._translate_attributes(token)
        if name in _BLOCKS:
            self._end_text()
            self._pieces += as_pieces(raw)
        elif token.kind == "close":
            self._tree.close(name, raw)
        elif token.kind == "single":
            last = self._tree.root[-1] if self._tree.root and not self._tree.depth else None
            if name == "br" and isinstance(last, Words) and _END.search(last.text):
                self._end_text()
            self._tree.add(Fixed(raw, separates=name not in _INVISIBLE))
        else:
            if name == "a" and self._follows_link():
                self._end_text()
            self._tree.open(name, raw)

    def _follows_link(self) -> bool:
        """Whether the last node, apart from white space, is a link. A link after it is in a list: a text of its own."""
        before = self._tree.root[-2:]
        while before and isinstance(before[-1], Words) and not before[-1].text.strip():
            before.pop()
        return bool(before) and not self._tree.depth and isinstance(before[-1], Element) and before[-1].name == "a"

    def _end_text(self) -> None:
        self._pieces += self._draft.add(self._tree.finish(), escape_text)

    def _keep(self, element: list[Token]) -> None:
        """Add an element that must not be translated, given as its tokens from the start tag to the end tag."""
        name, raw = element[0].name, "".join(token.raw for token in element)
        if name in _BLOCKS:
            self._end_text()
            self._pieces.append(raw)
        elif name in _WHOLE:
            self._tree.add(Fixed(raw, separates=name not in _INVISIBLE))
        else:
            self._tree.add(fixed(raw, "".join(unescape(token.raw) for token in element if token.kind == "text")))

    def _translate_attributes(self, token: Token) -> Raw:
        """The source of a tag, with slots for translations in place of attribute values that readers see, e.g. alt."""
        if token.kind == "close" or "=" not in token.raw:
            return token.raw
        found = list(read_attributes(token.raw))
        values = {name: value.lower() for name, value, _ in found}
        translated = set(_TEXT_ATTRIBUTES)
        if token.name == "input" and values.get("type") in ("submit", "button", "reset"):
            translated.add("value")
        if token.name == "meta" and values.get("name") == "description":
            translated.add("content")
        pieces: list[Piece] = []
        at = 0
        for name, value, start in found:
            if name in translated and start:
                pieces.append(token.raw[at:start])
                pieces += self._draft.add(list(read_words(value, unescape)), escape)
                at = start + len(value)
        return (*pieces, token.raw[at:]) if pieces else token.raw


def _end_of_element(tokens: list[Token], start: int) -> int:
    """The index after the last token of the element whose start tag is `tokens[start]`; it may have no end tag."""
    name, depth = tokens[start].name, 1
    inline = name not in _BLOCKS and name not in _WHOLE
    for place in range(start + 1, len(tokens)):
        token = tokens[place]
        if token.name == name and token.kind in ("open", "close"):
            if token.kind == "open" and name in _ENDED_BY_NEXT and depth == 1:
                return place
            depth += 1 if token.kind == "open" else -1
            if not depth:
                return place + 1
        elif (inline or name == "p") and token.name in _BLOCKS:
            return place
    return len(tokens)


def _stays_unchanged(token: Token) -> bool:
    """Whether the element with this start tag must not be translated: e.g. <code>, or an attribute translate="no"."""
    if token.name in _CODE or token.name in _WHOLE or token.name == "pre":
        return True
    if "translate" not in (lowered := token.raw.lower()):
        return False
    return any(
        value == "no" if name == "translate" else name == "class" and "notranslate" in value.split()
        for name, value, _ in read_attributes(lowered)
    )


escape_text = partial(escape, quote=False)  # for words outside attributes


# ---------------------------------------------------------------------------------------------------------------------
# Tokens

VOID = _names("area base br col embed hr img input link meta param source track wbr")
_RAW_TEXT = _names("script style textarea xmp iframe noembed noframes title")

# Quotation marks have a meaning only after "=" and only if they are closed. Possessive quantifiers (++) prevent
# backtracking.
_TAG = re.compile(r"""</?([a-zA-Z][^\s/>]*+)(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+>""")
_PLAIN_TAG = re.compile(r"</?([a-zA-Z][^\s/<>]*+)[^<>]*+>")
_TAG_START = re.compile(r"</?[a-zA-Z]")


class Token(NamedTuple):
    """One token of an HTML source: a tag, a text, or something else such as a comment."""

    kind: Kind
    """ "single": a tag without content; "other": a comment, a declaration, or content without text, e.g. a script."""
    raw: str
    name: str = ""  # of a tag, in lower case


def read_tokens(source: str) -> Iterator[Token]:
    tag, last = _TAG, source.rfind(">")
    done = at = 0  # tokens up to `done` are yielded; the search for the next "<" starts at `at`
    while (at := source.find("<", at)) >= 0:
        if source.startswith("<!--", at):
            token = Token("other", _until(source, at, "-->"))
        elif source.startswith(("<!", "<?"), at):
            token = Token("other", _until(source, at, ">"))
        elif at > last:
            break
        elif match := tag.match(source, at):
            raw, name = match.group(), match[1].lower()
            single = name in VOID or raw.endswith("/>")
            token = Token("close" if raw.startswith("</") else "single" if single else "open", raw, name)
        elif tag is _TAG and _TAG_START.match(source, at):
            tag = _PLAIN_TAG  # an unclosed quotation mark: from here on quotation marks are ignored
            continue
        elif source.startswith("</", at) and not _TAG_START.match(source, at):
            token = Token("other", _until(source, at, ">"))
        else:
            at += 1
            continue
        if done < at:
            yield Token("text", source[done:at])
        yield token
        done = at = at + len(token.raw)
        if token.kind == "open" and token.name in _RAW_TEXT:  # tags inside it are plain characters
            end = re.compile(rf"</{token.name}(?=[\s/>])", re.IGNORECASE).search(source, at)
            done = end.start() if end else len(source)
            if at < done:
                yield Token("text" if token.name == "title" else "other", source[at:done])
            at = done
    if done < len(source):
        yield Token("text", source[done:])


def _until(source: str, start: int, mark: str) -> str:
    """The source from `start`, where "<!", "<?" or "</" is, up to and including `mark` (e.g. ">"), or to the end."""
    end = source.find(mark, start + 2)
    return source[start:] if end < 0 else source[start : end + len(mark)]


_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'<>=]++)))?+""")


def read_attributes(raw: str) -> Iterator[tuple[str, str, int]]:
    """Yield name, value, and position of the value (0: not quoted) for each attribute of the start tag `raw`."""
    for match in _ATTRIBUTE.finditer(raw, re.match(r"<[^\s/>]*", raw).end()):  # type: ignore[union-attr]
        yield match[1].lower(), match[2] or match[3] or match[4] or "", max(match.start(2), match.start(3), 0)
