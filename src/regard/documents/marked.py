"""A text with marks in it: the text as the translator gets it, and where its marks stand between the words."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from regard.data.words import words
from regard.documents.inline import Break, Element, Fixed, Node, Words


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
