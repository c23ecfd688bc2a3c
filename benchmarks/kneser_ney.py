"""Interpolated modified Kneser-Ney (Chen and Goodman 1998): an n-gram language model over token ids, with numpy.

The counts of n-grams that begin with the start symbol are not replaced by numbers of preceding tokens, because nothing
precedes them, as in KenLM (Heafield et al. 2013). Unigrams are interpolated with the uniform distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
START = 0
"""The symbol before each text. Token ids are counted from 1 inside the model."""


class Level(NamedTuple):
    """The n-grams of one length. An n-gram is a row number of the level below (its first tokens) and a last token."""

    keys: Ints
    """Row number below times number of symbols, plus last token; sorted. The position in this array is the row."""
    counts: Floats
    """Counts or, below the highest order, numbers of different preceding tokens."""
    totals: Floats
    """For each row of the level below: the sum of the counts of its continuations."""
    discounted: Floats
    """For each row of the level below: the sum of the discounts of its continuations."""
    discounts: Floats
    """Discount of the counts 0, 1, 2 and 3 or more."""


class KneserNey:
    """An n-gram model of this order, trained on texts of token ids from 0 to `tokens` - 1, with their ends."""

    def __init__(self, texts: Sequence[Sequence[int]], tokens: int, order: int, discount: float | None = None):
        """`discount`: one discount for all orders above the first, and none for unigrams (None: estimate them)."""
        self.tokens, self.symbols, self.order = tokens, tokens + 1, order
        stream, position = _flatten(texts)
        keys, rows = self._rows(stream, position)
        self.levels: list[Level] = []
        for level in range(order):
            is_last = level + 1 == order
            counts = self._counts(keys, rows, stream, position, level, raw=is_last)
            if discount is None:
                discounts = _estimate(counts)
            else:
                discounts = np.array([0, *[0.0 if level == 0 else discount] * 3])
            below = keys[level] // self.symbols
            size = len(keys[level - 1]) if level else 1
            taken = discounts[np.minimum(counts, 3).astype(np.int64)]
            totals, discounted = (np.bincount(below, weight, size) for weight in (counts, taken))
            self.levels.append(Level(keys[level], counts, totals, discounted, discounts))

    def _rows(self, stream: Ints, position: Ints) -> tuple[list[Ints], list[Ints]]:
        """Per level: the keys of its n-grams, and the row of the n-gram that ends at each position (-1: none)."""
        keys: list[Ints] = []
        rows: list[Ints] = []
        for level in range(self.order):
            if level:
                below = np.concatenate([[-1], rows[-1][:-1]])  # the n-gram that ends one position before
            else:
                below = np.zeros_like(stream)
            exists = (below >= 0) & (position >= level)
            found, inverse = np.unique(below[exists] * self.symbols + stream[exists], return_inverse=True)
            row = np.full(len(stream), -1, np.int64)
            row[exists] = inverse
            keys.append(found)
            rows.append(row)
        return keys, rows

    def _counts(
        self, keys: list[Ints], rows: list[Ints], stream: Ints, position: Ints, level: int, *, raw: bool
    ) -> Floats:
        row = rows[level]
        counts = np.bincount(row[row >= 0], minlength=len(keys[level])).astype(np.float64)
        if not raw:
            above = rows[level + 1]
            longer, place = np.unique(above[above >= 0], return_index=True)
            ends = np.flatnonzero(above >= 0)[place]
            preceding = np.bincount(row[ends], minlength=len(keys[level])).astype(np.float64)
            assert len(longer) == len(keys[level + 1])
            at_start = np.zeros(len(keys[level]), bool)
            at_start[row[(row >= 0) & (position == level)]] = True
            counts = np.where(at_start, counts, preceding)
        if level == 0:
            counts[keys[0] == START] = 0.0  # never predicted
        return counts

    def log_probabilities(self, texts: Sequence[Sequence[int]]) -> Floats:
        """The natural log-probability of every token of the texts."""
        stream, position = _flatten(texts)
        probability = np.full(len(stream), 1.0 / self.tokens)
        before = np.zeros(
            len(stream), np.int64
        )  # row, in the level below, of the tokens before each position; -1: none
        own = np.zeros(len(stream), np.int64)
        for level, one in enumerate(self.levels):
            if level:
                before = np.concatenate([[-1], own[:-1]])  # of the n-gram that ends one position before
                before[position < level] = -1
            known = before >= 0
            key = np.where(known, before * self.symbols + stream, -1)
            place = np.minimum(np.searchsorted(one.keys, key), len(one.keys) - 1)
            found = known & (one.keys[place] == key)
            count = np.where(found, one.counts[place], 0.0)
            total = np.where(known, one.totals[before], 0.0)
            kept = np.maximum(count - one.discounts[np.minimum(count, 3).astype(np.int64)], 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                mixed = (kept + one.discounted[before] * probability) / total
            probability = np.where(total > 0, mixed, probability)
            own = np.where(found, place, -1)
        return np.log(probability[position > 0])


def _flatten(texts: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """All texts as one array of symbols, each after START, and the position of every symbol in its text."""
    lengths = np.array([len(text) + 1 for text in texts])
    stream = np.concatenate([np.array([START, *(id + 1 for id in text)], np.int64) for text in texts])
    position = np.arange(len(stream)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return stream, position


def _estimate(counts: Floats) -> Floats:
    """The discounts of Chen and Goodman (1998) for the counts 0, 1, 2 and 3 or more, from the counts of counts."""
    one, two, three, four = (float((counts == number).sum()) for number in (1, 2, 3, 4))
    if not min(one, two, three, four):
        return np.array([0.0, 0.5, 0.75, 1.0])  # too little text to estimate them
    share = one / (one + 2 * two)
    found = [0.0, 1 - 2 * share * two / one, 2 - 3 * share * three / two, 3 - 4 * share * four / three]
    return np.clip(np.array(found), 0.0, [0.0, 1.0, 2.0, 3.0])
