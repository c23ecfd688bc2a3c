"""Splitting a corpus into train, valid and test so that no sentence stands in two of them.

Pairs that share a source or a target sentence belong together, and so do pairs that hang together through others
("Hi / Hallo", "Hello / Hallo", "Hello / Guten Tag"): they are the connected components of a graph whose edges are the
pairs. Whole components are drawn in a random order until each part has what was asked for. Sentences are compared by
`normalise`; an empty side connects nothing.

Where a component is huge: a part first takes components of at most a tenth of its size, so that one knot of sentences
cannot fill a test set; only if these do not suffice does it take larger ones that still fit. A component larger than
the room that is left goes to train. So a part may come out smaller than asked (never larger), which `Split.sizes`
tells; a part that would stay empty is an error.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from regard.data.fingerprints import Numbering, normalise
from regard.data.formats import Pair
from regard.errors import CorpusError, SettingsError

PARTS = ("train", "valid", "test")
_TRAIN = 0


@dataclass(frozen=True)
class Split:
    """Which part each pair of a corpus belongs to."""

    parts: bytes
    """The number in `PARTS` of each pair, in the order of the corpus: one byte a pair."""
    wanted: dict[str, int]
    """Pairs asked for in each part."""
    components: int
    """Groups of pairs that hang together."""
    largest: int
    """Pairs in the largest of them."""

    @property
    def sizes(self) -> dict[str, int]:
        """Pairs in each part."""
        return {name: self.parts.count(number) for number, name in enumerate(PARTS)}

    def deal(self, pairs: Iterable[Pair], where: str = "corpus") -> Iterator[tuple[str, Pair]]:
        """Stream the same corpus once more, each pair with the name of its part."""
        count = 0
        for count, pair in enumerate(pairs, 1):
            if count > len(self.parts):
                break
            yield PARTS[self.parts[count - 1]], pair
        if count != len(self.parts):
            raise CorpusError(where, f"changed while it was split: {len(self.parts):,} pairs at first, then others")


def plan_split(
    pairs: Iterable[Pair], valid: int | float, test: int | float, seed: int = 1, where: str = "corpus"
) -> Split:
    """Read a corpus once and decide where each pair goes. A whole number is a count of pairs, a fraction a share.

    The same corpus and seed give the same split. Memory: 50 to 70 bytes a pair, never the text itself.
    """
    return _share_out(_find_components(pairs), valid, test, seed, where)


def plan_group_split(
    groups: Iterable[tuple[str, int]], valid: int | float, test: int | float, seed: int = 1, where: str = "corpus"
) -> Split:
    """The same for pairs that come in groups, such as conversations, which stay whole and may share sentences.

    A group is its text, by which it is known when it comes again, and how many pairs it has.
    """
    texts = Numbering()
    first_pair, roots = array("I"), array("I")
    for text, count in groups:
        number = texts.number(normalise(text))
        if number == len(first_pair):
            first_pair.append(len(roots))
        roots.extend([first_pair[number]] * count)
    return _share_out(roots, valid, test, seed, where)


def _share_out(roots: array[int], valid: int | float, test: int | float, seed: int, where: str) -> Split:
    """Deal out components; `roots` has for each pair the number of the first pair of its component."""
    sizes = array("I", [0]) * len(roots)
    for root in roots:
        sizes[root] += 1
    wanted = _wanted_sizes(len(roots), valid, test)
    part_of_root = _draw(sizes, wanted, random.Random(seed))
    split = Split(
        parts=bytes(part_of_root[root] for root in roots),
        wanted=dict(zip(PARTS, wanted, strict=True)),
        components=sum(size > 0 for size in sizes),
        largest=max(sizes, default=0),
    )
    for name, size in split.sizes.items():
        if split.wanted[name] and not size:
            problem = f"{split.largest:,} of {len(roots):,} pairs hang together through shared sentences"
            raise CorpusError(
                where, f"nothing is left for {name}: {problem}; clean it, or ask for more pairs (data.{name}_pairs)"
            )
    return split


def _find_components(pairs: Iterable[Pair]) -> array[int]:
    """For each pair the number of the first pair of its component: union-find, always with the smaller as the root."""
    sentences = Numbering()
    first_pair = array("I")  # by sentence: the pair in which it first stood
    parent = array("I")
    for number, pair in enumerate(pairs):
        parent.append(number)
        for side in pair:
            text = normalise(side)
            if not text:
                continue
            sentence = sentences.number(text)
            if sentence == len(first_pair):
                first_pair.append(number)
            else:
                _unite(parent, first_pair[sentence], number)
    for number in range(len(parent)):
        parent[number] = parent[parent[number]]  # roots come before their children: one step finishes the path
    return parent


def _unite(parent: array[int], one: int, other: int) -> None:
    one, other = _find_root(parent, one), _find_root(parent, other)
    parent[max(one, other)] = min(one, other)


def _find_root(parent: array[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number


def _wanted_sizes(total: int, valid: int | float, test: int | float) -> tuple[int, int, int]:
    held_out = []
    for name, asked in (("valid", valid), ("test", test)):
        if isinstance(asked, float) and not 0 <= asked < 1:
            raise SettingsError(f"{name}: a share must be at least 0 and below 1, not {asked}")
        if asked < 0:
            raise SettingsError(f"{name} must not be negative")
        held_out.append(max(1, round(asked * total)) if isinstance(asked, float) and asked else int(asked))
    train = total - sum(held_out)
    if train < 1:
        raise SettingsError(
            f"valid {held_out[0]:,} and test {held_out[1]:,} leave nothing of {total:,} pairs for train"
        )
    return train, held_out[0], held_out[1]


def _draw(sizes: array[int], wanted: tuple[int, int, int], generator: random.Random) -> bytearray:
    """Give each component, named by its root, to a part: the held-out ones take what fits, train takes the rest."""
    order = array("I", (root for root, size in enumerate(sizes) if size))
    generator.shuffle(order)
    part_of_root = bytearray(len(sizes))
    for part in (2, 1):
        room = wanted[part]
        for limit in (wanted[part] // 10, wanted[part]):
            for root in order:
                if room == 0:
                    break
                if part_of_root[root] == _TRAIN and sizes[root] <= min(limit, room):
                    part_of_root[root] = part
                    room -= sizes[root]
    return part_of_root
