"""Text with inline markup: its nodes, how tags are matched, and the plain text that is sent to the translator.

A text is a list of nodes: words, elements around words, line breaks, and fixed pieces that must not change. `mark`
joins the words into one plain text and records between which words each piece of markup stands.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from regard.data.words import word_texts, words

DEEPEST = 40
"""Elements inside one another; tags beyond are not matched, but stay where they are."""
MOST_NODES = 1000
"""Nodes in an element, or in a text: more than any author writes are cut, so that no input takes long to place."""
SPOKEN_WORDS = 5
"""What stays as it is and has at most so many words is shown to the translator, as a part of the sentence."""

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


class Alignment(Protocol):
    """Which words render which; `regard.tasks.answer.Alignment` is one."""

    @property
    def source(self) -> Sequence[str]: ...
    @property
    def target(self) -> Sequence[str]: ...
    @property
    def links(self) -> Sequence[tuple[int, int]]: ...


class Answer(Protocol):
    """A translation; `regard.tasks.answer.Answer` is one."""

    @property
    def text(self) -> str: ...
    @property
    def alignment(self) -> Alignment | None: ...


class Slot(Protocol):
    """A part of a document that depends on the translations."""

    def render(self, answers: Sequence[Answer]) -> str:
        """What stands there once all texts are translated."""


Piece = str | Slot
Raw = str | tuple[Piece, ...]
"""Source text to be given back as it is, or with some attributes of a tag translated."""


def fill(raw: Raw | Sequence[Piece], answers: Sequence[Answer]) -> str:
    """Source text with its slots filled."""
    if isinstance(raw, str):
        return raw
    return "".join(piece if isinstance(piece, str) else piece.render(answers) for piece in raw)


@dataclass(frozen=True)
class Words:
    """Running text."""

    raw: str
    text: str
    """The raw text without entities and escapes."""


@dataclass(frozen=True)
class Fixed:
    """Something that stays as it is: an image, a comment, code, an address, a tag without its counterpart.

    With a text it is a part of the sentence, and takes the place of the words that render it. Without, it goes to the
    place in the translation that corresponds to its own.
    """

    raw: Raw
    text: str = ""
    parts: bool = False
    """It parts the words on its two sides, as <br> does, without white space."""
    spoken: bool = False
    """It is read as words, as an address is."""


@dataclass(frozen=True)
class Break:
    """A line break, or whatever else must keep its order and have words on both sides."""

    raw: str
    must: bool
    """It is never left out, even if words are few."""


@dataclass(frozen=True)
class Element:
    """Tags around something."""

    name: str
    opening: Raw
    inside: tuple[Node, ...]
    closing: Raw
    hollow: bool = True
    """It may stand around nothing; else it is left out where nothing is left to stand around."""
    rewritten: str | None = None
    """What closes it once its text has changed, where that is not what closed it in the source."""


Node = Words | Fixed | Break | Element


def source_of(nodes: Sequence[Node], answers: Sequence[Answer]) -> str:
    """The nodes as they stood in the document, but for attributes that are translated."""
    found = []
    for node in nodes:
        if isinstance(node, Element):
            found += [fill(node.opening, answers), source_of(node.inside, answers), fill(node.closing, answers)]
        else:
            found.append(fill(node.raw, answers))
    return "".join(found)


def has_letters(node: Node) -> bool:
    """Whether there is something to translate in it."""
    if isinstance(node, Element):
        return any(map(has_letters, node.inside))
    return isinstance(node, Words) and any(map(str.isalpha, node.text))


def fixed(raw: Raw, text: str) -> Fixed:
    """Words that stay; they are a part of the sentence if they are few."""
    said = " ".join(text.split())
    return Fixed(raw, said if len(word_texts(said)) <= SPOKEN_WORDS else "", spoken=bool(said))


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


def read_words(raw: str, decode: Callable[[str], str] = str) -> Iterator[Node]:
    """Running text, in which addresses and placeholders stay as they are."""
    for piece, stays in cut_fragile(raw):
        text = decode(piece)
        yield fixed(piece, text) if stays else Words(piece, text)


@dataclass
class _Open:
    name: str
    raw: Raw
    hollow: bool
    alone: Node
    """What becomes of it if its counterpart never comes."""
    inside: list[Node] = field(default_factory=list)


class Tree:
    """Gathers nodes and matches tags. A tag without its counterpart stays where it is; nothing is ever lost."""

    def __init__(self) -> None:
        self.root: list[Node] = []
        self._open: list[_Open] = []
        self._names: Counter[str] = Counter()

    @property
    def depth(self) -> int:
        """How many elements are open."""
        return len(self._open)

    def add(self, *nodes: Node) -> None:
        """Put nodes into the innermost element that is open."""
        (self._open[-1].inside if self._open else self.root).extend(nodes)

    def open(self, name: str, raw: Raw, *, hollow: bool = True, alone: Node | None = None) -> None:
        """Begin an element."""
        alone = alone or Fixed(raw)
        if self.depth >= DEEPEST:
            self.add(alone)
            return
        self._open.append(_Open(name, raw, hollow, alone))
        self._names[name] += 1

    def is_open(self, name: str) -> bool:
        """Whether an element of this name is open."""
        return self._names[name] > 0

    def innermost(self, *names: str) -> str:
        """Which of these was opened last and is still open; empty if none is."""
        return next((one.name for one in reversed(self._open) if one.name in names), "")

    def close(self, name: str, raw: Raw, rewritten: str | None = None) -> None:
        """End the innermost element of this name; those inside it that are still open were never closed."""
        if not self.is_open(name):
            self.add(Fixed(raw))
            return
        self._give_up(lambda: self._open[-1].name == name)
        if len(self._open[-1].inside) > MOST_NODES:
            self._splice()
            self.add(Fixed(raw))
            return
        top = self._pop()
        self.add(Element(name, top.raw, tuple(top.inside), raw, top.hollow, rewritten))

    def forget(self, name: str) -> None:
        """Give up waiting for the end of the innermost element of this name."""
        if self.is_open(name):
            self._give_up(lambda: self._open[-1].name == name)
            self._splice()

    def finish(self) -> list[Node]:
        """All nodes; the tree begins anew."""
        self._give_up(lambda: not self._open)
        nodes, self.root = self.root, []
        return nodes

    def _give_up(self, until: Callable[[], bool]) -> None:
        while not until():
            self._splice()

    def _splice(self) -> None:
        top = self._pop()
        self.add(top.alone, *top.inside)

    def _pop(self) -> _Open:
        top = self._open.pop()
        self._names[top.name] -= 1
        return top


_TAG = re.compile(r"<(/?)([a-zA-Z][\w:-]*)([^<>]*)>|\{\\[^{}]*\}|(?<![ \t])[ \t]*+[\r\n]\s*")


def read_tags(raw: str) -> list[Node]:
    r"""Lines that may hold simple tags, as subtitles and messages of programs do: <i>, </font>, {\an8}."""
    tree, at = Tree(), 0
    for match in _TAG.finditer(raw):
        tree.add(*read_words(raw[at : match.start()]))
        name, tag = (match[2] or "").lower(), match.group()
        if not tag.strip():
            tree.add(Break(tag, must=False))
        elif not name or match[3].endswith("/") or name in ("br", "img", "wbr"):
            tree.add(Fixed(tag, parts=name == "br"))
        elif match[1]:
            tree.close(name, tag)
        else:
            tree.open(name, tag)
        at = match.end()
    tree.add(*read_words(raw[at:]))
    return tree.finish()


# ---------------------------------------------------------------------------------------------------------------------
# Marked text


class Space(NamedTuple):
    """Whether there is white space on either side of a mark."""

    before: bool
    after: bool


NO_SPACE = Space(False, False)


@dataclass
class Box:
    """A mark, and the words of the source that it encloses: `start` up to `end`; none if it only has a place."""

    node: Element | Fixed | Break
    start: int
    end: int
    inside: list[Box] = field(default_factory=list)
    space: Space = NO_SPACE

    def walk(self) -> Iterator[Box]:
        """The box and all boxes inside it."""
        yield self
        for box in self.inside:
            yield from box.walk()


@dataclass(frozen=True)
class Marked:
    """A text, its number of words, and its marks in order."""

    text: str
    size: int
    boxes: list[Box]

    def all_boxes(self) -> Iterator[Box]:
        """Every mark, at whatever depth."""
        for box in self.boxes:
            yield from box.walk()

    @property
    def needs_alignment(self) -> bool:
        """Whether the place of a mark depends on which words render which; line breaks go by length well enough."""
        return any(not isinstance(box.node, Break) or box.node.must for box in self.all_boxes())


def mark(nodes: Sequence[Node]) -> Marked:
    """The text of nodes, with runs of white space as one space, and their marks."""
    writer = _Writer()
    boxes = writer.write(nodes)
    text = writer.text.rstrip()
    found = words(text)
    return Marked(text, len(found), _count_words(boxes, [word.start for word in found], [word.end for word in found]))


def _count_words(boxes: Sequence[Box], starts: list[int], ends: list[int]) -> list[Box]:
    """Boxes whose places are words instead of characters.

    A placeholder that is written together with a word ("%1th") could not take the place of words: it is left to them.
    """
    counted = []
    for box in boxes:
        first, last = bisect_right(ends, box.start), bisect_left(starts, box.end)
        bare = first < last and isinstance(box.node, Fixed) and box.node.raw == box.node.text
        if bare and (starts[first] < box.start or ends[last - 1] > box.end):
            continue
        inside = _count_words(box.inside, starts, ends)
        counted.append(replace(box, start=first, end=max(first, last), inside=inside))
    return counted


class _Writer:
    """Writes the text of nodes; the boxes it gives hold places of characters."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._spaced = True  # the text ends in a space, or has not begun
        self._parted = False  # whatever comes next is another word
        self._waiting: list[Box] = []  # marks that have not yet seen what follows them

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def write(self, nodes: Sequence[Node]) -> list[Box]:
        boxes: list[Box] = []
        for node in nodes:
            if isinstance(node, Words):
                self._say(node.text)
                continue
            box = Box(node, self._size, self._size, space=Space(self._spaced and self._size > 0, False))
            boxes.append(box)
            if isinstance(node, Element):
                box.inside = self.write(node.inside)
            elif isinstance(node, Fixed) and node.text:
                self._say(node.text)
            else:
                self._parted |= isinstance(node, Break) or node.parts or node.spoken
            box.end = self._size
            self._waiting.append(box)
        return boxes

    def _say(self, text: str) -> None:
        if not text:
            return
        said = " ".join(text.split())
        leads, trails = text[0].isspace(), text[-1].isspace()
        for box in self._waiting:
            box.space = Space(box.space.before, leads)
        if said:
            self._waiting.clear()
        if (leads or self._parted) and not self._spaced:
            self._put(" ")
        if said:
            self._parted = False
            self._put(said)
            if trails:
                self._put(" ")

    def _put(self, text: str) -> None:
        self._pieces.append(text)
        self._size += len(text)
        self._spaced = text.endswith(" ")
