"""Text with inline markup: its nodes, how tags are matched, and the plain text that is sent to the translator.

A text is a list of nodes: words, elements (tag pairs) around words, line breaks, and `Fixed` nodes, which must not
change. `mark` joins the words into one plain text and records where each node of markup stands between the words.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import unescape
from typing import Protocol

from regard.text.words import word_texts, words

MAX_DEPTH = 40  # of nested elements; deeper tags are not matched and stay where they are
MAX_NODES = 1000  # per element and per text; longer ones are split, so that no input takes long to process
MAX_SHOWN_WORDS = 5  # a fixed piece of at most this many words is sent to the translator as part of the sentence

_KINDS = (
    # A web address, without punctuation at its end. In HTML, an entity ends the address.
    r"(?:https?://|ftp://|www\.)(?:(?!&(?:nbsp|lt|gt|quot|\#))[^\s<>\"'`|])*(?:(?!&)[^\s<>\"'`|.,;:!?)\]}*_])",
    r"(?<![\w.+-])[\w.+-]{1,64}+@\w[\w-]*(?:\.\w[\w-]*)+",  # an e-mail address
    r"%\(\w+\)[-+\#0]*\d*(?:\.\d+)?[a-zA-Z]",  # %(name)s
    r"%(?:\d+\$)?[-+\#0]*\d*(?:\.\d+)?(?:hh|ll|[hlLzjtq])?[diouxXeEfFgGcrsap@](?![a-zA-Z])",  # %s %5.2f %1$s %ld
    r"%\d+",  # %1, as in Qt
    r"\{\{[^{}\n]{1,60}\}\}",  # {{ name }}
    r"\$?\{[\w.:!,\[\]<>^+\#-]{0,40}\}",  # {} {0} {name:>8} ${name}
)
PROTECTED = re.compile(f"({'|'.join(_KINDS)})")
"""Addresses and placeholders, which a translation must not change."""


class Alignment(Protocol):
    """A word alignment: source words, target words, and `links`, pairs of a source index and a target index.

    Implemented by `regard.tasks.translate.translation.Alignment`.
    """

    @property
    def source(self) -> Sequence[str]: ...
    @property
    def target(self) -> Sequence[str]: ...
    @property
    def links(self) -> Sequence[tuple[int, int]]: ...


class Answer(Protocol):
    """The translation of one text; implemented by `regard.tasks.translate.translation.Translation`."""

    @property
    def text(self) -> str: ...
    @property
    def alignment(self) -> Alignment | None: ...


class Slot(Protocol):
    """A part of a document that is filled in later: `render` makes it from `answers`, the translations of all texts."""

    def render(self, answers: Sequence[Answer]) -> str: ...


Piece = str | Slot
Raw = str | tuple[Piece, ...]
"""Source text of a node: a string that stays unchanged, or pieces with slots for translated attributes."""


def fill(raw: Raw | Sequence[Piece], answers: Sequence[Answer]) -> str:
    """Join pieces of a document: strings unchanged, slots rendered with `answers`, the translations of all texts."""
    if isinstance(raw, str):
        return raw
    return "".join(piece if isinstance(piece, str) else piece.render(answers) for piece in raw)


@dataclass(frozen=True)
class Words:
    """A node of text without markup, which is translated."""

    raw: str
    text: str  # the raw text with entities and escapes decoded


@dataclass(frozen=True)
class Fixed:
    """A node that must not change: an image, a comment, code, a URL, a start tag without its end tag.

    If `text` is not empty, the translator gets it as part of the sentence, and `raw` replaces the target words that
    translate it. If `text` is empty, `raw` is placed at the corresponding position in the translation.
    """

    raw: Raw
    text: str = ""
    separates: bool = False  # it separates the words beside it without white space, like <br>
    visible: bool = False  # readers see it as words, like an address


@dataclass(frozen=True)
class Break:
    """A line break or another separator, which must have words on both sides. The breaks of a text keep their order."""

    raw: str
    required: bool  # never left out, even if there are too few words


@dataclass(frozen=True)
class Element:
    """A pair of tags (`opening`, `closing`) and the nodes inside it."""

    name: str
    opening: Raw
    inside: tuple[Node, ...]
    closing: Raw
    may_be_empty: bool = True  # if False, the tags are left out where they would enclose nothing
    rewritten: str | None = None  # the end tag around a translated text, if it differs from `closing`


Node = Words | Fixed | Break | Element


def as_pieces(raw: Raw) -> list[Piece]:
    return [raw] if isinstance(raw, str) else list(raw)


def source_of(nodes: Iterable[Node]) -> list[Piece]:
    """Return nodes as they were in the file: unchanged strings, and a slot per attribute to translate (alt)."""
    found: list[Piece] = []
    for node in nodes:
        if isinstance(node, Element):
            found += [*as_pieces(node.opening), *source_of(node.inside), *as_pieces(node.closing)]
        else:
            found += as_pieces(node.raw)
    return found


def has_letters(node: Node) -> bool:
    """Whether the node contains letters to translate; a `Fixed` node has none."""
    if isinstance(node, Element):
        return any(map(has_letters, node.inside))
    return isinstance(node, Words) and any(map(str.isalpha, node.text))


def fixed(raw: Raw, text: str) -> Fixed:
    """A `Fixed` node that readers see as `text`; the translator gets this text if it has <= MAX_SHOWN_WORDS words."""
    said = " ".join(text.split())
    return Fixed(raw, said if len(word_texts(said)) <= MAX_SHOWN_WORDS else "", visible=bool(said))


def read_words(raw: str, decode: Callable[[str], str] = str) -> Iterator[Node]:
    """Yield the nodes of text without tags: URLs and placeholders become `Fixed` nodes. `decode` decodes entities."""
    for place, piece in enumerate(PROTECTED.split(raw)):
        if piece:
            yield fixed(piece, decode(piece)) if place % 2 else Words(piece, decode(piece))


@dataclass
class _Open:
    """A start tag whose end tag has not been found yet, and the nodes read after it."""

    name: str
    raw: Raw
    may_be_empty: bool
    unmatched: Node  # replaces the start tag if there is no end tag
    inside: list[Node] = field(default_factory=list)


class Tree:
    """Builds nested nodes from words and tags in reading order. An unmatched tag becomes a separate node."""

    def __init__(self) -> None:
        self.root: list[Node] = []
        self._open: list[_Open] = []

    @property
    def depth(self) -> int:
        return len(self._open)

    def add(self, *nodes: Node) -> None:
        (self._open[-1].inside if self._open else self.root).extend(nodes)

    def open(self, name: str, raw: Raw, *, may_be_empty: bool = True, unmatched: Node | None = None) -> None:
        if self.depth < MAX_DEPTH:
            self._open.append(_Open(name, raw, may_be_empty, unmatched or Fixed(raw)))
        else:
            self.add(unmatched or Fixed(raw))

    def innermost(self, *names: str) -> str:
        """The name of the innermost open element that has one of these names; empty if there is none."""
        return next((tag.name for tag in reversed(self._open) if tag.name in names), "")

    def close(self, name: str, raw: Raw, rewritten: str | None = None) -> None:
        """Close the innermost open element called `name`; `raw` is its end tag.

        Open elements inside this one have no end tag: their start tags become separate nodes. If no element called
        `name` is open, the end tag becomes a `Fixed` node. `rewritten`: the end tag of a translated text; None: `raw`.
        """
        if self.innermost(name):
            self._unmatch_above(name)
            top = self._open[-1]
            if len(top.inside) <= MAX_NODES:
                self._open.pop()
                self.add(Element(name, top.raw, tuple(top.inside), raw, top.may_be_empty, rewritten))
                return
            self._unmatch()
        self.add(Fixed(raw))

    def forget(self, name: str) -> None:
        """Make the start tag of the innermost open element called `name` a separate node: it has no end tag."""
        if self.innermost(name):
            self._unmatch_above(name)
            self._unmatch()

    def finish(self) -> list[Node]:
        """Return all nodes and reset the tree. Start tags that are still open become separate nodes."""
        self._unmatch_above(None)
        nodes, self.root = self.root, []
        return nodes

    def _unmatch_above(self, name: str | None) -> None:
        """Make all open start tags inside the innermost element `name` separate nodes; None: all open start tags."""
        while self._open and self._open[-1].name != name:
            self._unmatch()

    def _unmatch(self) -> None:
        top = self._open.pop()
        self.add(top.unmatched, *top.inside)


_TAGS = re.compile(
    r"(?<![ \t])[ \t]*+[\r\n]\s*|<(?P<slash>/?)(?P<name>[a-zA-Z][\w:-]*)[^<>]*?(?P<single>/?)>|\{\\[^{}]*\}"
)


def read_tags(text: str, markup: re.Pattern[str] = _TAGS) -> list[Node]:
    r"""Parse text with simple tags, as in subtitles and program messages (<i>, </font>, {\an8}), into nodes.

    `markup` matches line breaks, entities and tags. Its groups for tags are `slash` (not empty in an end tag), `name`,
    and `single` (not empty in a tag that needs no end tag, e.g. <x/>).
    """
    tree, at = Tree(), 0
    for match in markup.finditer(text):
        tree.add(*read_words(text[at : match.start()]))
        raw, name, at = match.group(), (match["name"] or "").lower(), match.end()
        if raw.isspace():
            tree.add(Break(raw, required=False))
        elif raw.startswith("&"):
            tree.add(Words(raw, unescape(raw)))
        elif not name or match["single"] or name in ("br", "img", "wbr"):
            tree.add(Fixed(raw, separates=name == "br"))
        elif match["slash"]:
            tree.close(name, raw)
        else:
            tree.open(name, raw)
    tree.add(*read_words(text[at:]))
    return tree.finish()


# ---------------------------------------------------------------------------------------------------------------------
# Marked text


@dataclass
class Box:
    """The position of a node of markup: it encloses the words from index `start` up to but not including `end`.

    If `start` equals `end`, the node encloses no words; it stands before the word `start`.
    """

    node: Element | Fixed | Break
    start: int
    end: int
    inside: list[Box] = field(default_factory=list)
    space_before: bool = False
    space_after: bool = False


def walk(boxes: Iterable[Box]) -> Iterator[Box]:
    """Yield each box (the position of a node of markup), followed by all boxes inside it, at any depth."""
    for box in boxes:
        yield box
        yield from walk(box.inside)


@dataclass(frozen=True)
class Marked:
    """A text without its markup, its number of words (`size`), and the positions of the markup (`boxes`), in order."""

    text: str
    size: int
    boxes: list[Box]

    @property
    def needs_alignment(self) -> bool:
        """Whether a word alignment is needed to place the markup; optional line breaks are placed without one."""
        return any(not isinstance(box.node, Break) or box.node.required for box in walk(self.boxes))


def mark(nodes: Sequence[Node]) -> Marked:
    """Join nodes into a plain text, with each run of white space as one space, and record where the markup stands."""
    joiner = _TextJoiner()
    boxes = joiner.join(nodes)
    text = "".join(joiner.pieces).rstrip()
    found = words(text)
    return Marked(text, len(found), _count_words(boxes, [word.start for word in found], [word.end for word in found]))


def _count_words(boxes: Sequence[Box], starts: list[int], ends: list[int]) -> list[Box]:
    """Convert the positions of markup (`boxes`) from characters to words.

    `starts` and `ends` are the character positions of the words. Boxes of placeholders that are joined to a word
    ("%1th") are left out.
    """
    counted = []
    for box in boxes:
        first, last = bisect_right(ends, box.start), bisect_left(starts, box.end)
        bare = first < last and isinstance(box.node, Fixed) and box.node.raw == box.node.text
        if bare and (starts[first] < box.start or ends[last - 1] > box.end):
            continue  # a placeholder joined to a word ("%1th") cannot replace words: it is translated with them
        inside = _count_words(box.inside, starts, ends)
        counted.append(replace(box, start=first, end=max(first, last), inside=inside))
    return counted


class _TextJoiner:
    """Joins the texts of nodes into one text. `join` returns the positions of the markup, counted in characters."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._size = 0
        self._spaced = True  # the text ends in a space, or is empty
        self._new_word = False  # the next text starts a new word
        self._waiting: list[Box] = []  # marks whose following text is not known yet

    def join(self, nodes: Sequence[Node]) -> list[Box]:
        boxes: list[Box] = []
        for node in nodes:
            if isinstance(node, Words):
                self._add_text(node.text)
                continue
            box = Box(node, self._size, self._size, space_before=self._spaced and self._size > 0)
            boxes.append(box)
            if isinstance(node, Element):
                box.inside = self.join(node.inside)
            elif isinstance(node, Fixed) and node.text:
                self._add_text(node.text)
            else:
                self._new_word |= isinstance(node, Break) or node.separates or node.visible
            box.end = self._size
            self._waiting.append(box)
        return boxes

    def _add_text(self, text: str) -> None:
        if not text:
            return
        said, leads = " ".join(text.split()), text[0].isspace()
        for box in self._waiting:
            box.space_after = leads
        if (leads or self._new_word) and not self._spaced:
            self._put(" ")
        if said:
            self._waiting.clear()
            self._new_word = False
            self._put(f"{said} " if text[-1].isspace() else said)

    def _put(self, text: str) -> None:
        self.pieces.append(text)
        self._size += len(text)
        self._spaced = text.endswith(" ")
