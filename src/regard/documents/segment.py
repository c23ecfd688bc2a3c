"""A text of a document: what is sent to be translated, and what stands in its place once it is."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from regard.data.words import words
from regard.documents.markup import (
    FRAGILE,
    MOST_NODES,
    Answer,
    Box,
    Break,
    Element,
    Fixed,
    Marked,
    Node,
    Piece,
    Raw,
    Words,
    fill,
    has_letters,
    mark,
    source_of,
)
from regard.documents.placement import Placed, place_marks

Escape = Callable[[str], str]


@dataclass(frozen=True)
class Segment:
    """A slot for the translation of one text."""

    number: int
    """The place of the text among those of the document."""
    nodes: tuple[Node, ...]
    marked: Marked
    escape: Escape
    """Turns a translated word into source text of the format."""
    finish: Escape = str
    """Mends the whole, once it is put together."""

    def render(self, answers: Sequence[Answer]) -> str:
        """The translation with its marks. What is left as it was, or empty, stays as it stood in the document."""
        answer = answers[self.number]
        said = answer.text.split()
        if not said or said == self.marked.text.split():
            return source_of(self.nodes, answers)
        target = words(answer.text)
        gaps = [one.end < other.start for one, other in pairwise(target)]
        texts = [word.text for word in target]
        placed, left_out = place_marks(self.marked, texts, answer.alignment)
        written = ["" if place in left_out else self.escape(text) for place, text in enumerate(texts)]
        writing = _Writing(written, gaps, answers)
        return self.finish(writing.write(placed, 0, len(target)))

    def lost(self, answer: Answer) -> tuple[str, ...]:
        """Addresses, placeholders, code and numbers that the translation does not hold."""
        kept = FRAGILE.findall(self.marked.text)
        marked = [box.node.text for box in self.marked.all_boxes() if isinstance(box.node, Fixed) and box.node.text]
        kept += [text for text in marked if text not in kept]
        rest = self.marked.text
        for piece in kept:
            rest = rest.replace(piece, " ", 1)
        return (*missing_pieces(kept, answer.text), *missing_numbers(rest, answer.text))


class _Writing:
    """Target words and the marks between them, as source text."""

    def __init__(self, target: Sequence[str], gaps: Sequence[bool], answers: Sequence[Answer]):
        self.target, self.gaps, self.answers = target, gaps, answers

    def write(self, placed: Sequence[Placed], start: int, end: int) -> str:
        """The words from `start` to `end` with the marks that stand among them."""
        stretches = {one.start: one for one in placed if one.start < one.end}
        points: dict[int, list[Placed]] = {}
        for one in placed:
            if one.start == one.end:
                points.setdefault(one.start, []).append(one)
        written, at = [], start
        while True:
            spaced = start < at < end and self.gaps[at - 1] and bool(self.target[at - 1])
            written.append(self._between(points.get(at, ()), spaced, at == start, at == end))
            if at == end:
                return "".join(written)
            if stretch := stretches.get(at):
                written.append(self._enclose(stretch))
                at = stretch.end
            else:
                written.append(self.target[at])
                at += 1

    def _enclose(self, one: Placed) -> str:
        node = one.box.node
        if not isinstance(node, Element):
            return fill(node.raw, self.answers)
        if one.start == one.end and not node.hollow:
            return self.write(one.inside, one.start, one.end)
        inside = self.write(one.inside, one.start, one.end)
        closing = fill(node.closing, self.answers) if node.rewritten is None else node.rewritten
        return fill(node.opening, self.answers) + inside + closing

    def _between(self, points: Sequence[Placed], spaced: bool, first: bool, last: bool) -> str:
        """What stands between two words: white space, and marks with the white space that they had around them.

        Before the first word of an element, and after the last, there is none: it stands around the element.
        """
        if not points:
            return " " if spaced else ""
        left, right = _sides(points, spaced, first, last)
        joined = [" "] if left else []
        for place, one in enumerate(points):
            parted = place and not _breaks(one) and not _breaks(points[place - 1])
            if parted and (one.box.space.before or points[place - 1].box.space.after):
                joined.append(" ")
            joined.append(self._enclose(one))
        return "".join(joined) + " " * right


def _sides(points: Sequence[Placed], spaced: bool, first: bool, last: bool) -> tuple[bool, bool]:
    """Whether there is white space before and after marks between two words; a line break needs none."""
    before, after = points[0].box.space.before, points[-1].box.space.after
    if any(map(_breaks, points)):
        return (
            not first and not _breaks(points[0]) and (before or spaced),
            not last and not _breaks(points[-1]) and (after or spaced),
        )
    if not any(_shows(inner) for one in points for inner in one.box.walk()):
        return spaced and (before or not after), spaced and after and not before
    any_space = spaced or before or after
    left = not first and (before or (any_space and last))
    right = not last and (after or (any_space and first))
    if spaced and not left and not right:  # words that were apart stay apart, by a space or by what parts them
        left = not any(isinstance(one.box.node, Fixed) and one.box.node.parts for one in points)
    return left, right


def _breaks(one: Placed) -> bool:
    return isinstance(one.box.node, Break)


def _shows(box: Box) -> bool:
    """Whether something is seen there, with its own white space around it."""
    return isinstance(box.node, Fixed) and (box.node.parts or box.node.spoken)


@dataclass
class Draft:
    """Gathers the texts of a document while it is parsed."""

    segments: list[Segment] = field(default_factory=list)

    def add(self, nodes: Sequence[Node], escape: Escape = str, finish: Escape = str) -> list[Piece]:
        """Source text and at most one slot, of nodes that make up one text.

        What stands before and after the words is no part of the text, nor are tags around all of it.
        """
        before: list[Piece] = []
        after: list[Piece] = []  # last piece first
        rest = deque(nodes)
        while True:
            while rest and not _speaks(rest[0]):
                before += _raw(rest.popleft())
            while rest and not _speaks(rest[-1]):
                after += reversed(_raw(rest.pop()))
            if len(rest) != 1 or not isinstance(element := rest[0], Element) or element.rewritten is not None:
                break
            before += _pieces(element.opening)
            after += reversed(_pieces(element.closing))
            rest = deque(element.inside)
        if len(rest) > MOST_NODES:
            every = list(rest)
            for start in range(0, len(every), MOST_NODES):
                before += self.add(every[start : start + MOST_NODES], escape, finish)
        elif any(map(has_letters, rest)):
            left, text, right = _strip(list(rest))
            segment = Segment(len(self.segments), tuple(text), mark(text), escape, finish)
            self.segments.append(segment)
            before += [left, segment, right]
        else:
            before += [piece for node in rest for piece in _raw(node)]
        return [*before, *reversed(after)]


def _speaks(node: Node) -> bool:
    """Whether a node at the edge belongs to the text: words, or what stays as it is but is a part of the sentence."""
    return has_letters(node) or (isinstance(node, Fixed) and bool(node.text)) or _punctuates(node)


def _punctuates(node: Node) -> bool:
    if isinstance(node, Element):
        return any(map(_punctuates, node.inside)) or any(isinstance(one, Fixed) and one.text for one in node.inside)
    return isinstance(node, Words) and bool(node.text.strip())


def _raw(node: Node) -> list[Piece]:
    if isinstance(node, Element):
        inside = [piece for one in node.inside for piece in _raw(one)]
        return [*_pieces(node.opening), *inside, *_pieces(node.closing)]
    return _pieces(node.raw)


def _pieces(raw: Raw) -> list[Piece]:
    return [raw] if isinstance(raw, str) else list(raw)


_SPACE = re.compile(r"(?:\s|&nbsp;|&#160;|&#xa0;)*", re.IGNORECASE)


def _strip(nodes: list[Node]) -> tuple[str, list[Node], str]:
    """White space at the two ends, and the nodes without it."""
    left = right = ""
    if isinstance(first := nodes[0], Words):
        left, rest = _cut_space(first)
        nodes[0] = Words(rest, first.text.lstrip())
    if isinstance(final := nodes[-1], Words):
        rest = final.raw.rstrip()
        right = final.raw[len(rest) :]
        nodes[-1] = Words(rest, final.text.rstrip())
    return left, nodes, right


def _cut_space(node: Words) -> tuple[str, str]:
    """The white space that a text begins with, also where it is written as entities, and the rest."""
    match = _SPACE.match(node.raw) if node.raw != node.text else None
    size = match.end() if match else len(node.raw) - len(node.raw.lstrip())
    return node.raw[:size], node.raw[size:]


# ---------------------------------------------------------------------------------------------------------------------
# Pieces that a translation left out

_INSIDE_NUMBER = re.compile(r"(?<=\d)[\s.,'’](?=\d)")
_NUMBER = re.compile(r"\d{1,40}")


def missing_pieces(kept: list[str], text: str) -> list[str]:
    """Those pieces that `text` does not hold as often as they are wanted."""
    wanted = Counter(kept)
    return [piece for piece, times in wanted.items() if text.count(piece) < times]


def missing_numbers(source: str, text: str) -> list[str]:
    """Numbers of `source` that `text` does not hold. Separators may differ: 1,000.5 and 1.000,5 are one number."""
    return list((_numbers(source) - _numbers(text)).elements())


def _numbers(text: str) -> Counter[str]:
    return Counter(str(int(number)) for number in _NUMBER.findall(_INSIDE_NUMBER.sub("", text)))
