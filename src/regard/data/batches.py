"""Batches: which items are shown together and in which order, and the tensors that a model gets.

The order of training is one endless stream of batches, epoch after epoch, that depends on a seed alone. A position in
it is all that is needed to continue training, on one process or on many.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.store import Ids, Sentences, StorePart
from regard.errors import TrainingError
from regard.text.tokenizer import EOS, SOS

JITTER = 0.1
"""Share of the items that are sorted as if they were one token longer, so that batches differ between epochs."""

Index = NDArray[np.int64]
"""Numbers of items: pairs or documents."""


# ---------------------------------------------------------------------------------------------------------------------
# Tensors


@dataclass(frozen=True)
class TensorBatch:
    """Base of batches: dataclasses of tensors whose first dimension counts the items, and of other batches."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """A copy with every tensor changed."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {
            name: change(value) if isinstance(value, Tensor) else value.map(change)
            for name, value in values.items()
            if isinstance(value, Tensor | TensorBatch)
        }
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Self:
        return self.map(lambda tensor: tensor.to(device))

    def rows(self, index_R: Tensor) -> Self:
        """Some of the items, padded as before."""
        return self.map(lambda tensor: tensor[index_R])


@dataclass(frozen=True)
class TokenSource(TensorBatch):
    """Padded sentences: their ids with EOS at the end, and a mask that is True where they are real."""

    ids_BS: Tensor
    mask_BS: Tensor


@dataclass(frozen=True)
class Batch(TensorBatch):
    """Pairs to learn from. The decoder reads `target_input` (SOS first) and predicts `target_output` (EOS last)."""

    source: TokenSource
    target_input_BT: Tensor
    target_output_BT: Tensor
    target_mask_BT: Tensor
    """True where input and output are real."""
    index_B: Tensor
    """The numbers of these pairs."""
    source_tokens: int
    """Real tokens, EOS included; likewise for the target."""
    target_tokens: int

    def twice(self) -> Batch:
        """The batch with every pair twice, so that each passes through two different dropout masks (R-Drop)."""
        twice = self.map(lambda tensor: torch.cat([tensor, tensor]))
        return replace(twice, source_tokens=2 * self.source_tokens, target_tokens=2 * self.target_tokens)

    def rows(self, index_R: Tensor) -> Batch:
        some = super().rows(index_R)
        source_tokens, target_tokens = int(some.source.mask_BS.sum()), int(some.target_mask_BT.sum())
        return replace(some, source_tokens=source_tokens, target_tokens=target_tokens)


def make_batch(
    pairs: Sequence[tuple[Ids | list[int], Ids | list[int]]],
    source_pad: int,
    target_pad: int,
    index: Index | None = None,
) -> Batch:
    """Join pairs of ids into tensors. `index`: their numbers in the store; 0, 1, ... if it is not given."""
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
    """Rows of ids with EOS appended, as one array filled up with `pad`, and the mask of what is real."""
    lengths_B = np.fromiter(map(len, rows), np.int64, len(rows))
    place_S = np.arange(lengths_B.max() + 1)
    ids_BS = np.full((len(rows), len(place_S)), pad, np.int64)
    ids_BS[place_S < lengths_B[:, None]] = np.concatenate(rows)
    ids_BS[np.arange(len(rows)), lengths_B] = EOS
    return ids_BS, place_S <= lengths_B[:, None]


@dataclass(frozen=True)
class DocumentBatch(TensorBatch):
    """Documents of segments of tokens, and their labels if they have any."""

    ids_BUS: Tensor
    mask_BUS: Tensor
    target_BL: Tensor
    """1 for each label that a document has."""
    index_B: Tensor
    """The numbers of these documents."""

    @property
    def target_tokens(self) -> int:
        """Number of documents, over which the loss is summed."""
        return len(self.target_BL)


def make_documents(
    documents: Sequence[Sentences], pad: int, window: int = 0, labels: Sequence[Sequence[int]] = (), count: int = 0,
    index: NDArray[np.int64] | None = None,
) -> DocumentBatch:  # fmt: skip
    """Join documents into tensors. `window`: see `_segments`; `count`: number of labels that exist."""
    segments = [_segments([len(sentence) for sentence in sentences], window) for sentences in documents]
    lengths_BU = np.zeros((len(documents), max(map(len, segments))), np.int64)
    for row, found in enumerate(segments):
        lengths_BU[row, : len(found)] = found
    mask_BUS = np.arange(lengths_BU.max()) < lengths_BU[:, :, None]
    ids_BUS = np.full(mask_BUS.shape, pad, np.int64)
    ids_BUS[mask_BUS] = np.concatenate([ids for sentences in documents for ids in sentences])
    target_BL = torch.zeros(len(documents), count)
    for row, numbers in enumerate(labels):
        target_BL[row, list(numbers)] = 1.0
    index_B = torch.arange(len(documents)) if index is None else torch.tensor(index, dtype=torch.int64)
    return DocumentBatch(torch.from_numpy(ids_BUS), torch.from_numpy(mask_BUS), target_BL, index_B)


def _segments(lengths: Sequence[int], window: int) -> Sequence[int]:
    """Lengths of the segments: the sentences themselves, or as many neighbours as fit into a window."""
    if not window:
        return lengths
    joined = [lengths[0]]
    for length in lengths[1:]:
        if joined[-1] + length <= window:
            joined[-1] += length
        else:
            joined.append(length)
    return joined


# ---------------------------------------------------------------------------------------------------------------------
# The order of training


class BatchPosition(NamedTuple):
    """An epoch (the first is 0), and the position of its first batch in the stream."""

    epoch: int
    position: int


START = BatchPosition(0, 0)


class BatchStream:
    """The endless stream of batches of training, by position; a batch holds the numbers of its items.

    Every epoch shows every item as often as its weight says, and the next epoch follows without a gap. Process r of n
    takes the positions p with p % n == r, so that n processes together see the same batches as one.
    """

    def __init__(
        self,
        lengths: tuple[Ids, Ids],
        budget: int,
        seed: int,
        weights: Sequence[StorePart] = (),
        known: BatchPosition = START,
    ):
        """`known`, from `mark` of an equal stream, saves planning earlier epochs; earlier positions raise an error."""
        if not len(lengths[0]):
            raise TrainingError("there is nothing to train on: every pair has an empty side or exceeds data.max_length")
        self._marks = [known]
        self._plan = lru_cache(maxsize=1)(lambda epoch: epoch_batches(lengths, budget, seed, epoch, weights))

    def at(self, position: int) -> Index:
        """The batch at a position of the stream."""
        mark = self.mark(position)
        return self._plan(mark.epoch)[position - mark.position]

    def mark(self, position: int) -> BatchPosition:
        """The epoch that a position belongs to."""
        while (last := self._marks[-1]).position <= position:  # the number of batches is known once an epoch is planned
            self._marks.append(BatchPosition(last.epoch + 1, last.position + len(self._plan(last.epoch))))
        place = bisect(self._marks, position, key=lambda mark: mark.position) - 1
        if place < 0:
            raise ValueError(f"position {position} is before {self._marks[0]}, the first one that this stream knows")
        return self._marks[place]


def epoch_batches(
    lengths: tuple[Ids, Ids], budget: int, seed: int, epoch: int, weights: Sequence[StorePart] = ()
) -> list[Index]:
    """The batches of one epoch, in the order of training: a function of the arguments and nothing else.

    A batch has at most `budget` tokens: rows times the longer of its two padded sides, EOS and SOS included. A pair
    with more tokens is a batch of its own. Pairs of similar lengths on both sides are put together.
    """
    chance = np.random.Generator(np.random.PCG64([seed % (1 << 64), epoch]))
    order = chance.permutation(_shown(len(lengths[0]), weights, chance))  # decides between equal lengths
    longest, difference = _measure(lengths, order)
    row = longest + (chance.random(len(order)) < JITTER)
    width = np.int64(2 * longest.max(initial=0) + 1)
    # For every second length the difference is sorted downwards, so that it never jumps between neighbours.
    by_length = np.argsort(row * width + np.where(row % 2, difference, -difference), kind="stable")
    order, longest = order[by_length], longest[by_length]
    batches = [order[start:end] for start, end in pairwise(cut(longest, budget))]
    return [batches[place] for place in chance.permutation(len(batches))]


def in_batches(lengths: Sequence[int], budget: int, *, skip_empty: bool = False) -> list[list[int]]:
    """Numbers of the rows of these lengths, longest first, in batches whose padded size is at most `budget`."""
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(-sizes, kind="stable")
    if skip_empty:
        order = order[sizes[order] > 0]
    return [order[start:end].tolist() for start, end in pairwise(cut(sizes[order], budget))]


def cut(longest: NDArray[np.integer], budget: int) -> list[int]:
    """Bounds of batches of neighbouring rows: rows times the longest one is at most `budget`; an empty row counts 1."""
    longest = np.maximum(longest, 1)
    bounds = [0]
    row_numbers = np.arange(1, budget + 1)
    while (start := bounds[-1]) < len(longest):
        window = longest[start : start + max(1, budget // int(longest[start]))]
        sizes = np.maximum.accumulate(window) * row_numbers[: len(window)]
        bounds.append(start + max(1, int(np.searchsorted(sizes, budget, side="right"))))
    return bounds


def _measure(lengths: tuple[Ids, Ids], order: Index) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Length of the longer side of each pair, EOS or SOS included, and the source length minus the target length."""
    source, target = (side[order].astype(np.int32) for side in lengths)
    return np.maximum(source, target) + 1, source - target


def _shown(pairs: int, weights: Sequence[StorePart], chance: np.random.Generator) -> Index:
    """Items of an epoch: each as often as the integer part of its weight, and once more with the rest as chance."""
    shown, start = [], 0
    for end, weight in weights or (StorePart(pairs, 1.0),):
        numbers = np.arange(start, end)
        shown += [numbers] * int(weight)
        if weight % 1:
            shown.append(numbers[chance.random(len(numbers)) < weight % 1])
        start = end
    return np.concatenate(shown)
