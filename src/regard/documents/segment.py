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
    """One text to translate, as a slot of the document; `render` writes its translation with the source's markup."""

    number: int  # index of the text in the document
    nodes: tuple[Node, ...]
    marked: Marked
    escape: Escape  # converts a translated word to source text of the format
    finish: Escape = str  # escapes what only the whole translation shows, e.g. line starts in Markdown

    def render(self, answers: Sequence[Answer]) -> str:
        """The translation with its markup, or the source if the translation is empty or equals the source text.

        `answers` has the translations of all texts of the document.
        """
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
        """URLs, placeholders, code and numbers of the text that are missing from its translation."""
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
    """How often each number occurs in a text; separators are removed, so that 1,000.5 equals 1.000,5."""
    return Counter(str(int(number)) for number in _NUMBER.findall(_INSIDE_NUMBER.sub("", text)))


class _TargetWriter:
    """Writes one translated segment in the format of the file: its words, with the markup that `write` gets.

    `target`: the words; `gaps[i]`: whether white space follows word i; `answers`: the translations of all segments of
    the document, because markup can contain other segments, such as the alt text of an image.
    """

    def __init__(self, target: Sequence[str], gaps: Sequence[bool], answers: Sequence[Answer]):
        self.target, self.gaps, self.answers = target, gaps, answers

    def write(self, placed: Sequence[Box], start: int, end: int) -> str:
        """The words from `start` up to but not including `end` as one string, with the markup `placed` around them."""
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
        """The markup `points` (boxes that enclose no words) between two words, with the white space around it.

        `spaced`: whether the translation has white space between the two words. `first` and `last`: whether this is the
        gap before the first word, or after the last word, of an element; white space is not written at its edges.
        """
        if not points:
            return " " if spaced else ""
        left, right = _spaces_around(points, spaced, first, last)
        joined = [" "] if left else []
        for place, box in enumerate(points):
            parted = place and not _breaks(box) and not _breaks(points[place - 1])
            if parted and (box.space_before or points[place - 1].space_after):
                joined.append(" ")
            joined.append(self._enclose(box))
        return "".join(joined) + " " * right


def _spaces_around(points: Sequence[Box], spaced: bool, first: bool, last: bool) -> tuple[bool, bool]:
    """Whether to write a space before, and one after, the markup `points` between two words; none at a line break.

    `spaced`: white space separates the two words. `first`, `last`: the markup starts, or ends, an element.
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
    """Whether readers see this markup, e.g. an image or a URL, so that the white space beside it matters."""
    return any(isinstance(box.node, Fixed) and (box.node.separates or box.node.visible) for box in walk([mark]))


@dataclass
class Draft:
    """Collects the texts to translate of a document while it is parsed."""

    segments: list[Segment] = field(default_factory=list)

    def add(self, nodes: Sequence[Node], escape: Escape = str, finish: Escape = str) -> list[Piece]:
        """Add one text; return its pieces: strings that stay unchanged, and a slot for the translation.

        A text without letters has no slot. Markup that encloses the whole text stays unchanged. A text of more than
        MAX_NODES nodes is split. `escape` converts a translated word, and `finish` the whole translation, to the
        format of the file.
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
    """Whether a node at the start or end of a text belongs to it: words, or a `Fixed` node that the translator gets."""
    if isinstance(node, Element):
        return any(map(_is_content, node.inside))
    return not isinstance(node, Break) and bool(node.text.strip())


_SPACE = re.compile(r"(?:\s|&nbsp;|&#160;|&#xa0;)*", re.IGNORECASE)


def _strip(nodes: list[Node]) -> tuple[str, list[Node], str]:
    """Split `nodes` into leading white space (also "&nbsp;"), the nodes of the text, and trailing white space."""
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
    """Split `source` into texts at line ends and tabs, and add them to `draft`; `read` parses the markup of a text."""
    pieces: list[Piece] = []
    for place, part in enumerate(_SEPARATORS.split(source)):
        pieces += [part] if place % 2 else draft.add(list(read(part)))
    return pieces
