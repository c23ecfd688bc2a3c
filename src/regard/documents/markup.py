"""Text with inline markup: its nodes, how tags are matched, and the plain text that is sent to the translator.

A text is a list of nodes: words, elements around words, line breaks, and fixed pieces that must not change. `mark`
joins the words into one plain text and records between which words each piece of markup stands.
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
    """A word alignment; implemented by `regard.tasks.translate.translation.Alignment`."""

    @property
    def source(self) -> Sequence[str]: ...
    @property
    def target(self) -> Sequence[str]: ...
    @property
    def links(self) -> Sequence[tuple[int, int]]: ...


class Answer(Protocol):
    """A translation; implemented by `regard.tasks.translate.translation.Translation`."""

    @property
    def text(self) -> str: ...
    @property
    def alignment(self) -> Alignment | None: ...


class Slot(Protocol):
    """A part of a document that depends on translations: `render` receives the translations of all texts."""

    def render(self, answers: Sequence[Answer]) -> str: ...


Piece = str | Slot
Raw = str | tuple[Piece, ...]
"""Source text of a node: a string that stays unchanged, or pieces with slots for translated attributes."""


def fill(raw: Raw | Sequence[Piece], answers: Sequence[Answer]) -> str:
    """Join pieces of source text; each slot is replaced by its translation."""
    if isinstance(raw, str):
        return raw
    return "".join(piece if isinstance(piece, str) else piece.render(answers) for piece in raw)


@dataclass(frozen=True)
class Words:
    """Running text."""

    raw: str
    text: str  # the raw text with entities and escapes decoded


@dataclass(frozen=True)
class Fixed:
    """A piece that must not change: an image, a comment, code, an address, a tag without its counterpart.

    If `text` is not empty, the piece is part of the sentence, and replaces the target words that translate `text`. If
    `text` is empty, the piece is placed at the corresponding position in the translation.
    """

    raw: Raw
    text: str = ""
    separates: bool = False  # it separates the words beside it without white space, like <br>
    visible: bool = False  # readers see it as words, like an address


@dataclass(frozen=True)
class Break:
    """A line break, or another mark that must have words on both sides. All breaks of a text stay in their order."""

    raw: str
    required: bool  # never left out, even if there are too few words


@dataclass(frozen=True)
class Element:
    """A start tag, its content and the end tag."""

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
    """The source text of the nodes, with slots for translated attributes."""
    found: list[Piece] = []
    for node in nodes:
        if isinstance(node, Element):
            found += [*as_pieces(node.opening), *source_of(node.inside), *as_pieces(node.closing)]
        else:
            found += as_pieces(node.raw)
    return found


def has_letters(node: Node) -> bool:
    """Whether the node contains letters to translate."""
    if isinstance(node, Element):
        return any(map(has_letters, node.inside))
    return isinstance(node, Words) and any(map(str.isalpha, node.text))


def fixed(raw: Raw, text: str) -> Fixed:
    """A fixed piece that readers see as `text`. With at most MAX_SHOWN_WORDS words, it is part of the sentence."""
    said = " ".join(text.split())
    return Fixed(raw, said if len(word_texts(said)) <= MAX_SHOWN_WORDS else "", visible=bool(said))


def read_words(raw: str, decode: Callable[[str], str] = str) -> Iterator[Node]:
    """Nodes of running text; addresses and placeholders become fixed pieces. `decode` decodes entities."""
    for place, piece in enumerate(PROTECTED.split(raw)):
        if piece:
            yield fixed(piece, decode(piece)) if place % 2 else Words(piece, decode(piece))


@dataclass
class _Open:
    """A start tag whose end tag has not been found yet, and the nodes after the tag."""

    name: str
    raw: Raw
    may_be_empty: bool
    unmatched: Node  # replaces the start tag if there is no end tag
    inside: list[Node] = field(default_factory=list)


class Tree:
    """Collects nodes and matches tags. A tag without its counterpart stays where it is; nothing is lost."""

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
        """The name of the innermost open element with one of these names; empty if there is none."""
        return next((tag.name for tag in reversed(self._open) if tag.name in names), "")

    def close(self, name: str, raw: Raw, rewritten: str | None = None) -> None:
        """Close the innermost open element of this name; `raw` is its end tag. `rewritten`: see `Element`.

        Elements inside it that are still open become unmatched tags. If no element of this name is open, the end tag
        becomes a fixed piece.
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
        """Make the innermost open element of this name an unmatched tag."""
        if self.innermost(name):
            self._unmatch_above(name)
            self._unmatch()

    def finish(self) -> list[Node]:
        """Return all nodes and reset the tree."""
        self._unmatch_above(None)
        nodes, self.root = self.root, []
        return nodes

    def _unmatch_above(self, name: str | None) -> None:
        """Unmatch the open elements inside the innermost element called `name`; if None, all open elements."""
        while self._open and self._open[-1].name != name:
            self._unmatch()

    def _unmatch(self) -> None:
        top = self._open.pop()
        self.add(top.unmatched, *top.inside)


_TAGS = re.compile(
    r"(?<![ \t])[ \t]*+[\r\n]\s*|<(?P<slash>/?)(?P<name>[a-zA-Z][\w:-]*)[^<>]*?(?P<single>/?)>|\{\\[^{}]*\}"
)


def read_tags(text: str, markup: re.Pattern[str] = _TAGS) -> list[Node]:
    r"""Nodes of lines with simple tags, as in subtitles and program messages: <i>, </font>, {\an8}.

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
    """A mark (a node of markup) and the words that it encloses: from `start` up to but not including `end`.

    If `start` equals `end`, the mark encloses no words; it stands before the word `start`.
    """

    node: Element | Fixed | Break
    start: int
    end: int
    inside: list[Box] = field(default_factory=list)
    space_before: bool = False
    space_after: bool = False


def walk(boxes: Iterable[Box]) -> Iterator[Box]:
    """The boxes and, after each box, all boxes inside it."""
    for box in boxes:
        yield box
        yield from walk(box.inside)


@dataclass(frozen=True)
class Marked:
    """A plain text, its number of words, and boxes that say where its markup stands, in order."""

    text: str
    size: int
    boxes: list[Box]

    @property
    def needs_alignment(self) -> bool:
        """Whether a word alignment is needed to place the marks; breaks that are not required are placed without it."""
        return any(not isinstance(box.node, Break) or box.node.required for box in walk(self.boxes))


def mark(nodes: Sequence[Node]) -> Marked:
    """Join nodes into a text, with each run of white space as one space, and record where the marks stand."""
    joiner = _TextJoiner()
    boxes = joiner.join(nodes)
    text = "".join(joiner.pieces).rstrip()
    found = words(text)
    return Marked(text, len(found), _count_words(boxes, [word.start for word in found], [word.end for word in found]))


def _count_words(boxes: Sequence[Box], starts: list[int], ends: list[int]) -> list[Box]:
    """Convert the positions of boxes from characters to words, given the start and end of each word.

    Placeholders that are joined to a word ("%1th") are left out.
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
    """Joins the text of nodes. `join` returns boxes with character positions instead of word positions."""

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
