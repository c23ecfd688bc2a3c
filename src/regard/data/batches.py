"""Batches: which pairs are shown together and in which order, and the tensors that a model gets.

The order of training is one endless stream of batches, epoch after epoch, that follows from a seed alone. A position in
it says all there is to say about where training stands, on one process or on many.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import TrainSettings
from regard.data.store import Ids, StorePart
from regard.errors import TrainingError
from regard.text.tokenizer import EOS, SOS
from regard.training.schedule import ScheduleStage

JITTER = 0.1
"""Share of the pairs that are sorted as though they were one token longer, so that batches change with the epoch."""

Index = NDArray[np.int64]
"""Numbers of pairs."""


@dataclass(frozen=True)
class TokenSource:
    """Sentences to read: ids with EOS at their end, padded, and where they are real."""

    ids_BS: Tensor
    mask_BS: Tensor

    def to(self, device: torch.device | str) -> TokenSource:
        """The same on another device."""
        return TokenSource(self.ids_BS.to(device), self.mask_BS.to(device))


@dataclass(frozen=True)
class Batch:
    """Pairs to learn from. The decoder reads `target_input` (SOS first) and is to say `target_output` (EOS last)."""

    source: TokenSource
    target_input_BT: Tensor
    target_output_BT: Tensor
    target_mask_BT: Tensor
    """True where input and output are real."""
    index_B: Tensor
    """Which pairs these are."""
    source_tokens: int
    """Real tokens, EOS included; the target's likewise."""
    target_tokens: int

    def twice(self) -> Batch:
        """The same pairs once more below, for seeing each of them through two dropouts."""
        return Batch(
            TokenSource(self.source.ids_BS.repeat(2, 1), self.source.mask_BS.repeat(2, 1)),
            self.target_input_BT.repeat(2, 1),
            self.target_output_BT.repeat(2, 1),
            self.target_mask_BT.repeat(2, 1),
            self.index_B.repeat(2),
            2 * self.source_tokens,
            2 * self.target_tokens,
        )

    def to(self, device: torch.device | str) -> Batch:
        """The same on another device."""
        return Batch(
            self.source.to(device),
            self.target_input_BT.to(device),
            self.target_output_BT.to(device),
            self.target_mask_BT.to(device),
            self.index_B.to(device),
            self.source_tokens,
            self.target_tokens,
        )


def make_batch(
    pairs: Sequence[tuple[Ids | list[int], Ids | list[int]]],
    source_pad: int,
    target_pad: int,
    index: Index | None = None,
) -> Batch:
    """Join pairs of ids, as the store gives them, into tensors. `index`: their numbers there, or else 0, 1, ..."""
    source_BS, source_mask_BS = _pad([source for source, _ in pairs], source_pad)
    output_BT, mask_BT = _pad([target for _, target in pairs], target_pad)
    input_BT = np.full_like(output_BT, SOS)
    input_BT[:, 1:] = np.where(mask_BT[:, 1:], output_BT[:, :-1], target_pad)
    return Batch(
        source=TokenSource(torch.from_numpy(source_BS), torch.from_numpy(source_mask_BS)),
        target_input_BT=torch.from_numpy(input_BT),
        target_output_BT=torch.from_numpy(output_BT),
        target_mask_BT=torch.from_numpy(mask_BT),
        index_B=torch.arange(len(pairs)) if index is None else torch.tensor(index, dtype=torch.int64),
        source_tokens=int(source_mask_BS.sum()),
        target_tokens=int(mask_BT.sum()),
    )


def make_sources(sentences: Sequence[Ids | list[int]], pad: int) -> TokenSource:
    """Join the ids of sentences into tensors, EOS appended."""
    ids_BS, mask_BS = _pad(sentences, pad)
    return TokenSource(torch.from_numpy(ids_BS), torch.from_numpy(mask_BS))


def _pad(rows: Sequence[Ids | list[int]], pad: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows of ids with EOS appended as one array filled up with `pad`, and where it is real."""
    lengths_B = np.fromiter(map(len, rows), np.int64, len(rows))
    place_S = np.arange(lengths_B.max() + 1)
    ids_BS = np.full((len(rows), len(place_S)), pad, np.int64)
    ids_BS[place_S < lengths_B[:, None]] = np.concatenate(rows)
    ids_BS[np.arange(len(rows)), lengths_B] = EOS
    return ids_BS, place_S <= lengths_B[:, None]


class BatchPosition(NamedTuple):
    """An epoch, counted from 0, and the position of its first batch in the stream."""

    epoch: int
    position: int


START = BatchPosition(0, 0)


class BatchStream:
    """The endless stream of batches that training sees, by position; batches hold the numbers of pairs.

    Every epoch shows every pair as often as its weight says, and the next one follows without a gap. Process r of n
    takes the positions p with p % n == r, so that together the processes see what one alone would.
    """

    def __init__(
        self,
        lengths: tuple[Ids, Ids],
        budget: int,
        seed: int,
        weights: Sequence[StorePart] = (),
        known: BatchPosition = START,
    ):
        """`lengths` and `weights` as a `Store` has them, `budget` and `seed` as in `epoch_batches`.

        `known`, from `mark` of an equal stream, saves planning the epochs before it again; no position before it can
        be asked for.
        """
        if not len(lengths[0]):
            raise TrainingError("there is nothing to train on: every pair has an empty side or exceeds data.max_length")
        self._lengths, self._budget, self._seed, self._weights = lengths, budget, seed, weights
        self._marks = [known]
        self._planned: tuple[int, list[Index]] = (-1, [])  # the last epoch planned, and its batches

    def at(self, position: int) -> Index:
        """The batch at a position of the stream."""
        mark = self.mark(position)
        return self._plan(mark.epoch)[position - mark.position]

    def mark(self, position: int) -> BatchPosition:
        """The epoch that a position falls into."""
        while (last := self._marks[-1]).position <= position:  # only a planned epoch tells how many batches it has
            self._marks.append(BatchPosition(last.epoch + 1, last.position + len(self._plan(last.epoch))))
        place = bisect(self._marks, position, key=lambda mark: mark.position) - 1
        if place < 0:
            raise ValueError(f"position {position} lies before {self._marks[0]}, from where this stream is known")
        return self._marks[place]

    def _plan(self, epoch: int) -> list[Index]:
        if self._planned[0] != epoch:
            batches = epoch_batches(self._lengths, self._budget, self._seed, epoch, self._weights)
            self._planned = (epoch, batches)
        return self._planned[1]


def epoch_batches(
    lengths: tuple[Ids, Ids], budget: int, seed: int, epoch: int, weights: Sequence[StorePart] = ()
) -> list[Index]:
    """The batches of one epoch, in the order of training: a function of the arguments and nothing else.

    A batch is at most `budget` large: rows times the longer of its two padded sides, EOS and SOS included. A pair that
    is larger still stands alone. Pairs of similar lengths on both sides are put together.
    """
    chance = np.random.Generator(np.random.PCG64([seed % (1 << 64), epoch]))
    order = chance.permutation(_shown(len(lengths[0]), weights, chance))  # decides between equal lengths
    longest, difference = _measure(lengths, order)
    row = longest + (chance.random(len(order)) < JITTER)
    width = np.int64(2 * longest.max(initial=0) + 1)
    # Equal lengths are read to and fro, like the lines of a ploughed field, so that the difference never jumps.
    by_length = np.argsort(row * width + np.where(row % 2, difference, -difference), kind="stable")
    order, longest = order[by_length], longest[by_length]
    batches = [order[start:end] for start, end in pairwise(cut(longest, budget))]
    return [batches[place] for place in chance.permutation(len(batches))]


def in_batches(lengths: Sequence[int], budget: int, *, skip_empty: bool = False) -> list[list[int]]:
    """Numbers of the rows of these lengths, longest first, in batches whose padded size keeps to the budget."""
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(-sizes, kind="stable")
    if skip_empty:
        order = order[sizes[order] > 0]
    return [order[start:end].tolist() for start, end in pairwise(cut(sizes[order], budget))]


def cut(longest: NDArray[np.integer], budget: int) -> list[int]:
    """Where to cut rows of these lengths, in this order, so that rows times the longest of them keep to the budget.

    An empty row counts as one token.
    """
    longest = np.maximum(longest, 1)
    bounds = [0]
    row_numbers = np.arange(1, budget + 1)
    while (start := bounds[-1]) < len(longest):
        window = longest[start : start + max(1, budget // int(longest[start]))]
        sizes = np.maximum.accumulate(window) * row_numbers[: len(window)]
        bounds.append(start + max(1, int(np.searchsorted(sizes, budget, side="right"))))
    return bounds


def _measure(lengths: tuple[Ids, Ids], order: Index) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Longer side of each pair, EOS or SOS included, and by how much the source is longer than the target."""
    source, target = (side[order].astype(np.int32) for side in lengths)
    return np.maximum(source, target) + 1, source - target


def _shown(pairs: int, weights: Sequence[StorePart], chance: np.random.Generator) -> Index:
    """Which pairs an epoch shows: each as often as the whole part of its weight says, and by chance once more."""
    shown, start = [], 0
    for end, weight in weights or (StorePart(pairs, 1.0),):
        numbers = np.arange(start, end)
        shown += [numbers] * int(weight)
        if weight % 1:
            shown.append(numbers[chance.random(len(numbers)) < weight % 1])
        start = end
    return np.concatenate(shown)


# What every task has of its training data: an endless stream of batches that can be entered anywhere.


class StreamTrainUnit:
    """The part of `training.loop.Task` that is the same for all."""

    stage = ScheduleStage()

    def __init__(self, settings: TrainSettings, lengths: tuple[Ids, Ids], weights: Sequence[StorePart] = ()):
        """`lengths` and `weights` as `BatchStream` takes them."""
        self._settings, self.lengths, self._weights = settings, lengths, weights
        self.enter(0, 0)

    def enter(self, epoch: int, start: int) -> None:
        """Make ready for positions from this epoch on."""
        settings, known = self._settings, BatchPosition(epoch, start)
        self.stream = BatchStream(self.lengths, settings.batch_tokens, settings.seed, self._weights, known=known)

    def mark(self, position: int) -> tuple[int, int]:
        """The epoch that a position falls into, and the position of its first batch."""
        return self.stream.mark(position)

    def largest_of(self, size: Callable[[Index], int]) -> Index:
        """What the largest batch of the first epoch holds."""
        settings = self._settings
        return max(epoch_batches(self.lengths, settings.batch_tokens, settings.seed, 0, self._weights), key=size)
