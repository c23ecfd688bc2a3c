"""Holding out: which examples training never sees, where no files of their own say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from regard.config import Data
from regard.data.formats import Pair
from regard.data.split import PARTS, plan_split
from regard.errors import SettingsError

SHARE = 10
"""At most one text in so many is held out for each part."""
Example = TypeVar("Example")


def held_out_sizes(data: Data, most: int) -> tuple[int, int]:
    """How many examples the validation and the test part take from the training data, at most `most` each."""
    valid = 0 if data.valid else min(data.valid_pairs, most)
    test = 0 if data.valid or data.test else min(data.test_pairs, most)
    if not data.valid and not valid:
        raise SettingsError("data.valid_pairs = 0 and no validation file: training could not tell when to stop")
    return valid, test


def split_texts(texts: Sequence[str], data: Data, seed: int) -> bytes:
    """The number in `PARTS` of each text. The same text is never in two of them."""
    valid, test = held_out_sizes(data, max(len(texts) // SHARE, 1))
    if not valid and not test:
        return bytes(len(texts))
    return plan_split((Pair(text, "") for text in texts), valid, test, seed, where=data.train[0].source).parts


def deal(corpora: Sequence[Sequence[Example]], parts: bytes) -> Iterator[dict[str, list[Example]]]:
    """The examples of each corpus by part. `parts` has a number for each example, corpus after corpus."""
    numbers = iter(parts)
    for corpus in corpora:
        dealt: dict[str, list[Example]] = {part: [] for part in PARTS}
        for example in corpus:
            dealt[PARTS[next(numbers)]].append(example)
        yield dealt
