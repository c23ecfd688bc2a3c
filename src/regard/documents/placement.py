"""Places markup in a translation: tags enclose the target words that translate the source words they enclosed.

An element gets the span of target words that agrees best with the alignment links; markup inside it stays inside.
Markup that encloses no words goes into the gap between target words where the fewest links cross it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regard.documents.markup import Alignment, Box, Break, Element, Fixed, Marked, has_letters, walk
from regard.text.words import word_texts

OUTSIDE = 0.5  # a target word weighs 1 if it translates words inside the tags, and -OUTSIDE if it translates others

Links = list[tuple[int, int]]
Span = tuple[int, int]


def place_marks(marked: Marked, target: Sequence[str], alignment: Alignment | None) -> tuple[list[Box], set[int]]:
    """The positions of the markup of a text in its translation, and the indices of target words to leave out.

    `target` has the words of the translation. A word is left out if it is a copy of a `Fixed` node, e.g. a URL, and the
    node itself was placed elsewhere because of the tags around it.
    """
    known = alignment is not None and (len(alignment.source), len(alignment.target)) == (marked.size, len(target))
    links = _links(marked, len(target), alignment)
    kept = [box for box in walk(marked.boxes) if isinstance(box.node, Fixed) and box.start < box.end]
    links, pinned = _link_copies(kept, tuple(target), links)
    placer = _Placer(target, links, None if known else pinned)
    placed = placer.place(marked.boxes, (0, marked.size), (0, len(target)))
    replaced = [range(box.start, box.end) for box in walk(placed) if isinstance(box.node, Fixed)]
    return placed, pinned.difference(*replaced)


def _links(marked: Marked, size: int, alignment: Alignment | None) -> Links:
    """Pairs (source word, target word) of linked words; `size` is the number of target words.

    Without an alignment, words at the same relative position are linked.
    """
    if alignment is None or not alignment.links or not marked.size:
        return [((2 * place + 1) * marked.size // (2 * size), place) for place in range(size)] if marked.size else []
    # A tokenizer with unknown characters may count words differently than we do.
    sources = [place * marked.size // len(alignment.source) for place in range(len(alignment.source))]
    targets = [place * size // len(alignment.target) for place in range(len(alignment.target))]
    return sorted({(sources[s], targets[t]) for s, t in alignment.links if s < len(sources) and t < len(targets)})


def _link_copies(kept: Sequence[Box], target: tuple[str, ...], links: Links) -> tuple[Links, set[int]]:
    """Link each node in `kept` that must not change, e.g. a URL, to a copy of its text in `target`, if there is one.

    If there are several copies, one that is already linked to the node is preferred. Returns the new links, and the
    indices of the target words of the copies.
    """
    linked: dict[int, list[int]] = defaultdict(list)
    for s, t in links:
        linked[s].append(t)
    texts = [tuple(word_texts(box.node.text)) for box in kept if isinstance(box.node, Fixed)]
    runs: dict[tuple[str, ...], list[int]] = defaultdict(list)  # positions of runs of words, from last to first
    for size in set(map(len, texts)):
        for start in range(len(target) - size, -1, -1):
            runs[target[start : start + size]].append(start)
    sources, taken, pinned = set[int](), set[int](), Links()
    for box, text in zip(kept, texts, strict=True):
        size = len(text)
        if size != box.end - box.start:  # its words are joined to others, as in "pre%s"
            continue
        preferred = [start for start in linked[box.start] if target[start : start + size] == text]
        while preferred or runs[text]:
            start = preferred.pop(0) if preferred else runs[text].pop()
            if taken.isdisjoint(range(start, start + size)):
                taken.update(range(start, start + size))
                sources.update(range(box.start, box.end))
                pinned += [(box.start + place, start + place) for place in range(size)]
                break
    return [(s, t) for s, t in links if s not in sources and t not in taken] + pinned, taken


# ---------------------------------------------------------------------------------------------------------------------
# Placing


class _Placer:
    """Places the markup of one text by the alignment links between its words and the words of its translation."""

    def __init__(self, target: Sequence[str], links: Links, replaceable: set[int] | None):
        """`replaceable`: indices of target words that a node such as a URL may replace; None: all linked words."""
        pairs = np.array(sorted(links), dtype=np.int64).reshape(-1, 2)
        self.source, self.target = pairs[:, 0], pairs[:, 1]
        self.size = len(target)
        self.total_T = np.bincount(self.target, minlength=self.size)
        self.is_word_T = [any(map(str.isalnum, word)) for word in target]
        self.replaceable_T = np.array([replaceable is None or place in replaceable for place in range(self.size)])

    def place(self, boxes: Sequence[Box], source_span: Span, target_span: Span) -> list[Box]:
        """Return `boxes`, the markup in a span of source words, with positions in a span of target words."""
        taken_T = np.zeros(self.size, dtype=bool)
        closed_G = np.zeros(self.size + 1, dtype=bool)  # gaps between words of one box, where no other mark may be
        found: dict[int, Box] = {}  # by `id` of the source box
        enclosing = [box for box in boxes if box.start < box.end]
        for box in sorted(enclosing, key=lambda box: not isinstance(box.node, Fixed)):
            span = self._span(box, source_span, target_span, taken_T)
            if not span and has_letters(box.node):  # no target word is linked to its words: enclose one word nearby
                gap = self._gap(box.start, source_span, target_span, closed_G)
                beside = [place for place in (gap, gap - 1) if place in range(*target_span) and not taken_T[place]]
                span = next(((place, place + 1) for place in beside if self.is_word_T[place]), None)
            if span:
                start, end = span
                taken_T[start:end] = True
                closed_G[start + 1 : end] = True
                inside = self.place(box.inside, (box.start, box.end), span)
                found[id(box)] = replace(box, start=start, end=end, inside=inside)
        found |= self._place_breaks(boxes, source_span, target_span, closed_G)
        for box in boxes:
            if id(box) not in found and not isinstance(box.node, Break):
                found[id(box)] = _at(box, self._gap(box.start, source_span, target_span, closed_G))
        return [found[id(box)] for box in boxes if id(box) in found]

    # Marks that enclose words

    def _span(self, box: Box, source_span: Span, target_span: Span, taken_T: NDArray[np.bool_]) -> Span | None:
        """The span of target words for markup around source words (`box`); None if no free word is linked to these.

        `source_span` and `target_span` are those of the element around `box`, or of the whole text. `taken_T` is True
        for target words that are not free.
        """
        low, high = target_span
        fits = isinstance(box.node, Element) and (box.start, box.end) == source_span and low < high
        if fits and not taken_T[low:high].any():
            return target_span
        mine = self._linked(box.start, box.end, target_span)
        if not len(mine):
            return None
        left, right = int(mine.min()), int(mine.max()) + 1
        inside_T, total_T = np.bincount(mine - left), self.total_T[left:right]
        if isinstance(box.node, Fixed):  # must not replace words that mostly translate other words
            mine_T = (2 * inside_T >= np.maximum(total_T, 1)) & self.replaceable_T[left:right]
            weights = np.where(mine_T, 1.0, -np.inf)
        else:
            agreement = ((1 + OUTSIDE) * inside_T - OUTSIDE * total_T) / np.maximum(total_T, 1)
            weights = np.where(total_T > 0, agreement, 0.0)
        weights[taken_T[left:right]] = -np.inf
        return _best_span(weights, left)

    def _linked(self, start: int, end: int, target_span: Span) -> NDArray[np.int64]:
        """Indices of target words in `target_span` that are linked to the source words `start` to `end` - 1.

        A target word with several such links occurs several times.
        """
        first, last = np.searchsorted(self.source, (start, end))
        targets = self.target[first:last]
        return targets[(targets >= target_span[0]) & (targets < target_span[1])]

    # Marks without words

    def _gap(self, place: int, source_span: Span, target_span: Span, closed_G: NDArray[np.bool_]) -> int:
        """The gap in `target_span` with the lowest cost for markup that stands before the source word `place`.

        Gap i is before the target word i; `closed_G` is True for gaps that must not be used.
        """
        cost_G = self._cost(place, source_span, target_span)
        cost_G[closed_G[target_span[0] : target_span[1] + 1]] = np.inf
        return target_span[0] + int(np.argmin(cost_G))

    def _cost(self, place: int, source_span: Span, target_span: Span) -> NDArray[np.float64]:
        """The cost of placing markup before each word of `target_span`, and after its last word.

        In the source, the markup stands before the word `place`. The cost is the number of links that would cross the
        markup, plus a fraction below 1 that grows with the difference between the relative positions of the markup in
        source and target.
        """
        low, size = target_span[0], target_span[1] - target_span[0]
        before_T = np.bincount(self._linked(source_span[0], place, target_span) - low, minlength=size)
        after_T = np.bincount(self._linked(place, source_span[1], target_span) - low, minlength=size)
        passed_G = np.concatenate(([0], np.cumsum(before_T)))
        crossing_G = (passed_G[-1] - passed_G) + np.concatenate(([0], np.cumsum(after_T)))
        share = (place - source_span[0]) / max(source_span[1] - source_span[0], 1)
        distance_G = np.abs(np.arange(size + 1) - share * size)
        return crossing_G + distance_G / (2 * (size + 1))

    def _place_breaks(
        self, boxes: Sequence[Box], source_span: Span, target_span: Span, closed_G: NDArray[np.bool_]
    ) -> dict[int, Box]:
        """Place the line breaks among `boxes` in their order, with at least one target word between two.

        `closed_G` is True for gaps that must not be used. If no gap is left for a break, the break is left out, unless
        it is required: then it gets the gap of the previous break. Returns the placed boxes by the `id` of their source
        box.
        """
        found: dict[int, Box] = {}
        required = sum(isinstance(box.node, Break) and box.node.required for box in boxes)
        last = target_span[0]
        for box in boxes:
            if not isinstance(box.node, Break):
                continue
            required -= box.node.required
            first, end = last + 1, target_span[1] - required  # each later required break needs one word
            if first < end:
                cost_G = self._cost(box.start, source_span, target_span)[first - target_span[0] : end - target_span[0]]
                cost_G[closed_G[first:end]] = np.inf
                if np.isfinite(cost_G.min()):
                    last = first + int(np.argmin(cost_G))
                    found[id(box)] = _at(box, last)
            if box.node.required and id(box) not in found:
                found[id(box)] = _at(box, last)
        return found


def _at(box: Box, gap: int) -> Box:
    """Copy markup, and all markup inside it, to the gap before the target word `gap`, without words inside."""
    return replace(box, start=gap, end=gap, inside=[_at(inner, gap) for inner in box.inside])


def _best_span(weights: NDArray[np.float64], offset: int) -> Span | None:
    """The span of words with the largest sum of weights; None if no sum is above 0.

    `weights[0]` is the weight of the word with index `offset`.
    """
    best, span, total, start = 0.0, None, 0.0, 0
    for place, weight in enumerate(weights.tolist()):
        if total <= 0:
            total, start = 0.0, place
        total += weight
        if total > best:
            best, span = total, (offset + start, offset + place + 1)
    return span
