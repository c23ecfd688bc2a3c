"""Splits a corpus into train, valid and test so that no sentence is in two of them.

Pairs that share a source or a target sentence stay together, also if they are connected through other pairs
("Hi / Hallo", "Hello / Hallo", "Hello / Guten Tag"): they form a connected component of the graph in which sentences
are nodes and pairs are edges. Whole components are drawn in random order until each part has its size. Sentences are
compared after `normalize`; an empty side connects nothing.

A part first takes components of at most a tenth of its size, so that one large component cannot fill a test set; if
these are not enough, it takes larger components that still fit. A component that fits nowhere goes to train. So valid
and test may be smaller than requested, but never larger (see `Split.sizes`); an empty part is an error.

Texts are compared by 64-bit hashes, so that duplicates can be found in a corpus that is much larger than the memory.
"""

from __future__ import annotations

import random
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from typing import TypeVar

from regard.config import DataSettings
from regard.data.pairs import Pair
from regard.errors import CorpusError, SettingsError

PARTS = ("train", "valid", "test")
SHARE = 10  # at most 1 / SHARE of the texts are held out for each part

Example = TypeVar("Example")


# ---------------------------------------------------------------------------------------------------------------------
# Distinct texts


def fingerprint(text: str) -> int:
    """A 64-bit hash of a text, the same on all machines; among 10 million texts, P(any collision) is 1 in 370,000."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def pair_text(source: str, target: str) -> str:
    """Source and target as one string, so that different pairs give different strings."""
    return f"{len(source)} {source}{target}"


def normalize(sentence: str) -> str:
    """The form in which sentences are compared: composed (NFC), case-folded, with single spaces."""
    if not sentence.isascii():
        sentence = unicodedata.normalize("NFC", sentence)
    return " ".join(sentence.casefold().split())


class SeenTexts:
    """A set of texts that gives each distinct text an index 0, 1, 2, ... in the order of first occurrence.

    Only hashes are stored, in an open-addressing hash table of 4-byte indices into an array of 8-byte hashes: 14 to
    20 bytes per text, while a dictionary would take about 150.
    """

    def __init__(self) -> None:
        self._keys = array("Q")
        self._table = array("I", [0]) * 1024  # index + 1; 0: free

    def __len__(self) -> int:
        return len(self._keys)

    def index(self, text: str) -> int:
        """The index of a text. A new text is added."""
        key = fingerprint(text)
        table, keys = self._table, self._keys
        mask = len(table) - 1
        place = key & mask
        while entry := table[place]:
            if keys[entry - 1] == key:
                return entry - 1
            place = (place + 1) & mask
        keys.append(key)
        table[place] = len(keys)
        if 3 * len(keys) > 2 * len(table):
            self._grow()
        return len(keys) - 1

    def is_new(self, text: str) -> bool:
        """Whether the text is not in the set yet. The text is added, so the next call with it returns False."""
        known = len(self._keys)
        return self.index(text) == known

    def _grow(self) -> None:
        mask = 2 * len(self._table) - 1
        table = array("I", [0]) * (mask + 1)
        for number, key in enumerate(self._keys, 1):
            place = key & mask
            while table[place]:
                place = (place + 1) & mask
            table[place] = number
        self._table = table


# ---------------------------------------------------------------------------------------------------------------------
# Splitting


@dataclass(frozen=True)
class Split:
    """The assignment of each pair of a corpus to a part: "train", "valid" or "test"."""

    parts: bytes
    """One byte per pair of the corpus, in order: the index of its part in `PARTS`."""
    wanted: dict[str, int]
    """Requested number of pairs in each part."""
    components: int
    """Number of connected components: groups of pairs that share no sentence with other groups."""
    largest: int
    """Number of pairs in the largest component."""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of pairs in each part."""
        return {name: self.parts.count(number) for number, name in enumerate(PARTS)}

    def parts_of(self, pairs: Iterable[Pair], where: str = "corpus") -> Iterator[tuple[str, Pair]]:
        """For each pair, yield the name of its part and the pair. `pairs` must be the same corpus, read again.

        `where`: name of the corpus, for error messages.
        """
        for part, pair in zip_longest(self.parts, pairs):
            if part is None or pair is None:
                raise CorpusError(where, f"changed while it was split; it had {len(self.parts):,} pairs; try again")
            yield PARTS[part], pair


def plan_split(
    pairs: Iterable[Pair], valid: int | float, test: int | float, seed: int = 1, where: str = "corpus"
) -> Split:
    """Read a corpus once and assign each pair to train, valid or test. The same corpus and seed give the same split.

    `valid` and `test` are numbers of pairs (int) or shares of the corpus (float). `where`: name of the corpus, for
    error messages. Memory: 50 to 70 bytes per pair.
    """
    roots = _find_components(pairs)
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
            problem = f"{split.largest:,} of {len(roots):,} pairs share sentences and must stay together"
            advice = (
                f"clean the corpus, or ask for more pairs, so that such a group fits (--{name} or data.{name}_size)"
            )
            raise CorpusError(where, f"no pairs for {name}: {problem}; {advice}")
    return split


def _find_components(pairs: Iterable[Pair]) -> array[int]:
    """For each pair, the index of the first pair of its component (union-find with the smallest index as the root).

    A component is a set of pairs that share sentences, directly or through other pairs.
    """
    sentences = SeenTexts()
    first_pair = array("I")  # by sentence: the first pair that has it
    parent = array("I")
    for number, pair in enumerate(pairs):
        parent.append(number)
        for side in pair:
            if not (text := normalize(side)):
                continue
            sentence = sentences.index(text)
            if sentence == len(first_pair):
                first_pair.append(number)
            else:
                one, other = _find_root(parent, first_pair[sentence]), _find_root(parent, number)
                parent[max(one, other)] = min(one, other)
    for number in range(len(parent)):
        parent[number] = parent[parent[number]]  # roots come before their children, so one step is enough
    return parent


def _find_root(parent: array[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number


def _wanted_sizes(total: int, valid: int | float, test: int | float) -> tuple[int, int, int]:
    held_out = []
    for name, asked in (("valid", valid), ("test", test)):
        if isinstance(asked, float) and not 0 <= asked < 1:
            raise SettingsError(f"--{name}: a share must be at least 0 and below 1, not {asked}")
        if asked < 0:
            raise SettingsError(f"--{name} must be 0 or more, not {asked}")
        held_out.append(max(1, round(asked * total)) if isinstance(asked, float) and asked else int(asked))
    valid, test = held_out
    if valid + test >= total:
        raise SettingsError(
            f"valid {valid:,} and test {test:,} leave nothing of {total:,} pairs for train; "
            "hold out fewer (--valid and --test, or data.valid_size and data.test_size)"
        )
    return total - valid - test, valid, test


def _draw(sizes: array[int], wanted: tuple[int, int, int], generator: random.Random) -> bytearray:
    """Assign components (sets of pairs that share sentences) at random to the parts train, valid and test.

    `sizes[i]`: number of pairs of the component whose first pair is pair i; 0 for other pairs. `wanted`: number of
    pairs in each part. First test, then valid take components that fit; all others go to train. The result at index i
    is the part of this component, as an index into `PARTS`.
    """
    order = array("I", (root for root, size in enumerate(sizes) if size))
    generator.shuffle(order)
    part_of_root = bytearray(len(sizes))
    for part in (2, 1):
        room = wanted[part]
        for limit in (wanted[part] // 10, wanted[part]):
            for root in order:
                if room == 0:
                    break
                if not part_of_root[root] and sizes[root] <= min(limit, room):
                    part_of_root[root] = part
                    room -= sizes[root]
    return part_of_root


# ---------------------------------------------------------------------------------------------------------------------
# Holding out examples from the training data


def held_out_sizes(data: DataSettings, most: int) -> tuple[int, int]:
    """How many training examples to hold out for validation and for the test, at most `most` each.

    If the settings name validation files, both numbers are 0. If they name only test files, the second is 0.
    """
    valid = 0 if data.valid else min(data.valid_size, most)
    test = 0 if data.valid or data.test else min(data.test_size, most)
    if not data.valid and not valid:
        raise SettingsError("no validation data: set data.valid_size above 0, or name validation files in data.valid")
    return valid, test


def split_texts(texts: Sequence[str], data: DataSettings, seed: int) -> bytes:
    """Split texts into train, valid and test; return one byte per text, the index of its part in `PARTS`.

    Equal texts get the same part. `data` says how many texts to hold out.
    """
    valid, test = held_out_sizes(data, max(len(texts) // SHARE, 1))
    if not valid and not test:
        return bytes(len(texts))
    return plan_split((Pair(text, "") for text in texts), valid, test, seed, where=data.train[0].source).parts


def group_by_part(corpora: Sequence[Sequence[Example]], parts: bytes) -> Iterator[dict[str, list[Example]]]:
    """For each corpus, yield its examples by part. `parts`: one byte per example of all corpora, from `split_texts`."""
    remaining = iter(parts)
    for corpus in corpora:
        grouped: dict[str, list[Example]] = {part: [] for part in PARTS}
        for example in corpus:
            grouped[PARTS[next(remaining)]].append(example)
        yield grouped
