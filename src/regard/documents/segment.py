"""A segment: one text of a document to translate, and its place in the file. Also the plain-text format.

In plain text every line is a text. Line ends, blank lines, indentation and trailing spaces stay as they are.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from regard.documents.markup import (
    MAX_NODES,
    PROTECTED,
    Answer,
    Box,
    Break,
    Element,
    Fixed,
    Marked,
    Node,
    Piece,
    Words,
    as_pieces,
    fill,
    has_letters,
    mark,
    read_words,
    source_of,
    walk,
)
from regard.documents.placement import place_marks
from regard.text.words import words

Escape = Callable[[str], str]


@dataclass(frozen=True)
class Segment:
    """One text to translate; `render` writes its translation with the markup of the source."""

    number: int  # index of the text in the document
    nodes: tuple[Node, ...]
    marked: Marked
    escape: Escape  # converts a translated word to source text of the format
    finish: Escape = str  # escapes what only the whole translation shows, e.g. line starts in Markdown

    def render(self, answers: Sequence[Answer]) -> str:
        """The translation with its marks; the source if the translation is empty or equals the source text."""
        answer = answers[self.number]
        said = answer.text.split()
        if not said or said == self.marked.text.split():
            return fill(source_of(self.nodes), answers)
        target = words(answer.text)
        gaps = [one.end < other.start for one, other in pairwise(target)]
        texts = [word.text for word in target]
        placed, left_out = place_marks(self.marked, texts, answer.alignment)
        written = ["" if place in left_out else self.escape(text) for place, text in enumerate(texts)]
        return self.finish(_TargetWriter(written, gaps, answers).write(placed, 0, len(target)))

    def lost(self, answer: Answer) -> tuple[str, ...]:
        """Addresses, placeholders, code and numbers that are missing from the translation."""
        kept = PROTECTED.findall(self.marked.text)
        fixed = [box.node.text for box in walk(self.marked.boxes) if isinstance(box.node, Fixed) and box.node.text]
        kept += [text for text in fixed if text not in kept]
        rest = self.marked.text
        for piece in kept:
            rest = rest.replace(piece, " ", 1)
        pieces = [piece for piece, times in Counter(kept).items() if answer.text.count(piece) < times]
        return (*pieces, *(_numbers(rest) - _numbers(answer.text)).elements())


_INSIDE_NUMBER = re.compile(r"(?<=\d)[\s.,'’](?=\d)")
_NUMBER = re.compile(r"\d{1,40}")


def _numbers(text: str) -> Counter[str]:
    """The numbers of a text, without separators: 1,000.5 and 1.000,5 are equal."""
    return Counter(str(int(number)) for number in _NUMBER.findall(_INSIDE_NUMBER.sub("", text)))


class _TargetWriter:
    """Writes the words and marks of a translation in the format of the file. `gaps`: whether a space follows a word."""

    def __init__(self, target: Sequence[str], gaps: Sequence[bool], answers: Sequence[Answer]):
        self.target, self.gaps, self.answers = target, gaps, answers

    def write(self, placed: Sequence[Box], start: int, end: int) -> str:
        """The words from `start` up to but not including `end`, with the marks `placed`."""
        spans = {box.start: box for box in placed if box.start < box.end}
        points: dict[int, list[Box]] = defaultdict(list)
        for box in placed:
            if box.start == box.end:
                points[box.start].append(box)
        written, at = [], start
        while True:
            spaced = start < at < end and self.gaps[at - 1] and bool(self.target[at - 1])
            written.append(self._between(points[at], spaced, at == start, at == end))
            if at == end:
                return "".join(written)
            if span := spans.get(at):
                written.append(self._enclose(span))
                at = span.end
            else:
                written.append(self.target[at])
                at += 1

    def _enclose(self, box: Box) -> str:
        node = box.node
        if not isinstance(node, Element):
            return fill(node.raw, self.answers)
        inside = self.write(box.inside, box.start, box.end)
        if box.start == box.end and not node.may_be_empty:
            return inside
        closing = fill(node.closing, self.answers) if node.rewritten is None else node.rewritten
        return fill(node.opening, self.answers) + inside + closing

    def _between(self, points: Sequence[Box], spaced: bool, first: bool, last: bool) -> str:
        """The marks `points` between two words, with the white space around them.

        `spaced`: whether the translation has white space between the two words. `first` and `last`: whether this is the
        gap before the first word, or after the last word, of an element; white space is not written at its edges.
        """
        if not points:
            return " " if spaced else ""
        left, right = _sides(points, spaced, first, last)
        joined = [" "] if left else []
        for place, box in enumerate(points):
            parted = place and not _breaks(box) and not _breaks(points[place - 1])
            if parted and (box.space_before or points[place - 1].space_after):
                joined.append(" ")
            joined.append(self._enclose(box))
        return "".join(joined) + " " * right


def _sides(points: Sequence[Box], spaced: bool, first: bool, last: bool) -> tuple[bool, bool]:
    """Whether to write white space before and after the marks `points`; none beside a line break.

    `spaced`: the words around the marks are separated. `first`, `last`: the marks start or end an element.
    """
    before, after = points[0].space_before, points[-1].space_after
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
        left = not any(isinstance(box.node, Fixed) and box.node.separates for box in points)
    return left, right


def _breaks(box: Box) -> bool:
    return isinstance(box.node, Break)


def _is_seen(mark: Box) -> bool:
    """Whether readers see the mark, so that it has its own white space."""
    return any(isinstance(box.node, Fixed) and (box.node.separates or box.node.visible) for box in walk([mark]))


@dataclass
class Draft:
    """Collects the texts of a document during parsing."""

    segments: list[Segment] = field(default_factory=list)

    def add(self, nodes: Sequence[Node], escape: Escape = str, finish: Escape = str) -> list[Piece]:
        """Add one text; return unchanged source and a `Segment` for the translation. Without letters, all is unchanged.

        Markup that encloses the whole text stays outside the segment. A text of more than MAX_NODES nodes is split.
        `escape` converts a translated word, and `finish` the whole translation, to source text of the format.
        """
        before: list[Piece] = []
        after: list[Piece] = []  # last piece first
        rest = deque(nodes)
        while True:
            while rest and not _is_content(rest[0]):
                before += source_of([rest.popleft()])
            while rest and not _is_content(rest[-1]):
                after += reversed(source_of([rest.pop()]))
            if len(rest) != 1 or not isinstance(element := rest[0], Element) or element.rewritten is not None:
                break
            before += as_pieces(element.opening)
            after += reversed(as_pieces(element.closing))
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
            before += source_of(rest)
        return [*before, *reversed(after)]


def _is_content(node: Node) -> bool:
    """Whether a node at the start or end belongs to the text: words, or a fixed piece that is part of the sentence."""
    if isinstance(node, Element):
        return any(map(_is_content, node.inside))
    return not isinstance(node, Break) and bool(node.text.strip())


_SPACE = re.compile(r"(?:\s|&nbsp;|&#160;|&#xa0;)*", re.IGNORECASE)


def _strip(nodes: list[Node]) -> tuple[str, list[Node], str]:
    """White space before the text (also entities such as "&nbsp;"), the nodes without it, white space after it."""
    left = right = ""
    if isinstance(first := nodes[0], Words):
        match = _SPACE.match(first.raw) if first.raw != first.text else None
        size = match.end() if match else len(first.raw) - len(first.raw.lstrip())
        left = first.raw[:size]
        nodes[0] = Words(first.raw[size:], first.text.lstrip())
    if isinstance(final := nodes[-1], Words):
        rest = final.raw.rstrip()
        right = final.raw[len(rest) :]
        nodes[-1] = Words(rest, final.text.rstrip())
    return left, nodes, right


# ---------------------------------------------------------------------------------------------------------------------
# Plain text

_SEPARATORS = re.compile("(\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029\t]+)")  # a tab separates columns


def parse(source: str, draft: Draft, name: str) -> list[Piece]:
    return split_lines(source, draft, read_words)


def split_lines(source: str, draft: Draft, read: Callable[[str], Iterable[Node]]) -> list[Piece]:
    """Split `source` into texts at line ends and tabs; `read` converts a text to nodes."""
    pieces: list[Piece] = []
    for place, part in enumerate(_SEPARATORS.split(source)):
        pieces += [part] if place % 2 else draft.add(list(read(part)))
    return pieces
