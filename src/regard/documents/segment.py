"""One text of a document: the text to translate, and the source text that its translation becomes."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from regard.documents.markup import (
    MAX_NODES,
    PROTECTED,
    Answer,
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
from regard.text.words import words

Escape = Callable[[str], str]


@dataclass(frozen=True)
class Segment:
    """A slot for the translation of one text."""

    number: int
    """Index of the text in the document."""
    nodes: tuple[Node, ...]
    marked: Marked
    escape: Escape
    """Turns a translated word into source text of the format."""
    finish: Escape = str
    """Corrects the finished text."""

    def render(self, answers: Sequence[Answer]) -> str:
        """The translation with its marks; the source if the translation is empty or equal to it."""
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
        """Addresses, placeholders, code and numbers that are missing from the translation."""
        kept = PROTECTED.findall(self.marked.text)
        marked = [box.node.text for box in self.marked.all_boxes() if isinstance(box.node, Fixed) and box.node.text]
        kept += [text for text in marked if text not in kept]
        rest = self.marked.text
        for piece in kept:
            rest = rest.replace(piece, " ", 1)
        return (*missing_pieces(kept, answer.text), *missing_numbers(rest, answer.text))


class _Writing:
    """Writes target words and marks as source text."""

    def __init__(self, target: Sequence[str], gaps: Sequence[bool], answers: Sequence[Answer]):
        self.target, self.gaps, self.answers = target, gaps, answers

    def write(self, placed: Sequence[Placed], start: int, end: int) -> str:
        """The words from `start` to `end` with their marks."""
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
        if one.start == one.end and not node.may_be_empty:
            return self.write(one.inside, one.start, one.end)
        inside = self.write(one.inside, one.start, one.end)
        closing = fill(node.closing, self.answers) if node.rewritten is None else node.rewritten
        return fill(node.opening, self.answers) + inside + closing

    def _between(self, points: Sequence[Placed], spaced: bool, first: bool, last: bool) -> str:
        """The text between two words: white space, and marks with the white space that they had around them.

        Before the first word of an element and after the last there is no white space: it is outside the element.
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
    """Whether to write white space before and after marks between two words; a line break needs none."""
    before, after = points[0].box.space.before, points[-1].box.space.after
    if any(map(_breaks, points)):
        return (
            not first and not _breaks(points[0]) and (before or (spaced and _is_seen(points[0]))),
            not last and not _breaks(points[-1]) and (after or (spaced and _is_seen(points[-1]))),
        )
    if not any(map(_is_seen, points)):
        return spaced and (before or not after), spaced and after and not before
    any_space = spaced or before or after
    left = not first and (before or (any_space and last))
    right = not last and (after or (any_space and first))
    if spaced and not left and not right:  # separate words stay separate, by a space or by a mark
        left = not any(isinstance(one.box.node, Fixed) and one.box.node.separates for one in points)
    return left, right


def _breaks(one: Placed) -> bool:
    return isinstance(one.box.node, Break)


def _is_seen(one: Placed) -> bool:
    """Whether readers see the mark, so that it has its own white space."""
    fixed = [box.node for box in one.box.walk() if isinstance(box.node, Fixed)]
    return any(node.separates or node.visible for node in fixed)


@dataclass
class Draft:
    """Collects the texts of a document during parsing."""

    segments: list[Segment] = field(default_factory=list)

    def add(self, nodes: Sequence[Node], escape: Escape = str, finish: Escape = str) -> list[Piece]:
        """Add the nodes of one text; returns source text and at most one slot.

        Markup before and after the words, and tags around the whole text, are not part of the text.
        """
        before: list[Piece] = []
        after: list[Piece] = []  # last piece first
        rest = deque(nodes)
        while True:
            while rest and not _is_content(rest[0]):
                before += _raw(rest.popleft())
            while rest and not _is_content(rest[-1]):
                after += reversed(_raw(rest.pop()))
            if len(rest) != 1 or not isinstance(element := rest[0], Element) or element.rewritten is not None:
                break
            before += _pieces(element.opening)
            after += reversed(_pieces(element.closing))
            rest = deque(element.inside)
        if len(rest) > MAX_NODES:
            every = list(rest)
            for start in range(0, len(every), MAX_NODES):
                before += self.add(every[start : start + MAX_NODES], escape, finish)
        elif any(map(has_letters, rest)):
            left, text, right = _strip(list(rest))
            segment = Segment(len(self.segments), tuple(text), mark(text), escape, finish)
            self.segments.append(segment)
            before += [left, segment, right]
        else:
            before += [piece for node in rest for piece in _raw(node)]
        return [*before, *reversed(after)]


def _is_content(node: Node) -> bool:
    """Whether a node at the edge belongs to the text: words, or a fixed piece that is part of the sentence."""
    return has_letters(node) or (isinstance(node, Fixed) and bool(node.text)) or _has_text(node)


def _has_text(node: Node) -> bool:
    if isinstance(node, Element):
        return any(map(_has_text, node.inside)) or any(isinstance(one, Fixed) and one.text for one in node.inside)
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
    """Split off the white space at the two ends."""
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
    """Split off leading white space, also where it is written as entities."""
    match = _SPACE.match(node.raw) if node.raw != node.text else None
    size = match.end() if match else len(node.raw) - len(node.raw.lstrip())
    return node.raw[:size], node.raw[size:]


# ---------------------------------------------------------------------------------------------------------------------
# Pieces that are missing from a translation

_INSIDE_NUMBER = re.compile(r"(?<=\d)[\s.,'’](?=\d)")
_NUMBER = re.compile(r"\d{1,40}")


def missing_pieces(kept: list[str], text: str) -> list[str]:
    """Pieces that occur less often in `text` than in `kept`."""
    wanted = Counter(kept)
    return [piece for piece, times in wanted.items() if text.count(piece) < times]


def missing_numbers(source: str, text: str) -> list[str]:
    """Numbers of `source` that are missing from `text`. Separators may differ: 1,000.5 and 1.000,5 are equal."""
    return list((_numbers(source) - _numbers(text)).elements())


def _numbers(text: str) -> Counter[str]:
    return Counter(str(int(number)) for number in _NUMBER.findall(_INSIDE_NUMBER.sub("", text)))
