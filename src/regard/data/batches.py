"""Batches of examples of similar length: the tensors that a model gets, and the order of the training batches.

Training reads one endless stream of batches, epoch after epoch. The stream depends only on data and seed, so a position
in the stream is enough to continue training, with one process or with many.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
"""Indices of items (sentence pairs or documents) in a store."""


# ---------------------------------------------------------------------------------------------------------------------
# Tensors


@dataclass(frozen=True)
class TensorBatch:
    """Base class of batches. Its fields are tensors with the batch as first dimension, other batches, or numbers."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """A copy in which every tensor is replaced by `change(tensor)`."""
        changed: dict[str, Any] = {
            name: change(value) if isinstance(value, Tensor) else value.map(change)
            for name, value in vars(self).items()
            if isinstance(value, Tensor | TensorBatch)
        }
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Self:
        return self.map(lambda tensor: tensor.to(device))

    def rows(self, index_R: Tensor) -> Self:
        """A batch of the R items at the positions `index_R` of this batch. The padded length does not change."""
        return self.map(lambda tensor: tensor[index_R])


@dataclass(frozen=True)
class TokenSource(TensorBatch):
    """Padded sentences: the token ids with EOS at the end, and a mask that is False at padding."""

    ids_BS: Tensor
    mask_BS: Tensor


@dataclass(frozen=True)
class Batch(TensorBatch):
    """Training pairs. The decoder reads `target_input_BT` (SOS first) and predicts `target_output_BT` (EOS last)."""

    source: TokenSource
    target_input_BT: Tensor
    target_output_BT: Tensor
    target_mask_BT: Tensor
    """False at padding."""
    index_B: Tensor
    """Indices of the pairs in the store."""
    source_tokens: int
    """Number of source tokens with EOS, without padding."""
    target_tokens: int
    seed: int = 0
    """Random seed for losses that sample outputs of the model."""

    def twice(self) -> Batch:
        """A batch of all pairs and then all again: R-Drop computes each pair with two different dropout masks."""
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
    """Make a padded batch of pairs (source ids, target ids). `source_pad`, `target_pad`: ids of the padding tokens.

    `index`: the indices of the pairs in the store; default: 0, 1, ...
    """
    source = make_sources([source for source, _ in pairs], source_pad)
    input_BT, output_BT, mask_BT = make_targets([target for _, target in pairs], target_pad)
    return Batch(
        source=source,
        target_input_BT=input_BT,
        target_output_BT=output_BT,
        target_mask_BT=mask_BT,
        index_B=torch.arange(len(pairs)) if index is None else torch.tensor(index, dtype=torch.int64),
        source_tokens=int(source.mask_BS.sum()),
        target_tokens=int(mask_BT.sum()),
    )


def make_sources(sentences: Sentences, pad: int) -> TokenSource:
    """Make a padded batch of sentences, given as token ids; EOS is appended to each. `pad`: id of the padding token."""
    ids_BS, mask_BS = _pad(sentences, pad)
    return TokenSource(torch.from_numpy(ids_BS), torch.from_numpy(mask_BS))


def make_targets(sentences: Sentences, pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Decoder input (SOS first), expected output (EOS last) and mask (False at padding) of sentences as token ids."""
    output_BT, mask_BT = _pad(sentences, pad)
    input_BT = np.full_like(output_BT, SOS)
    input_BT[:, 1:] = np.where(mask_BT[:, 1:], output_BT[:, :-1], pad)
    return torch.from_numpy(input_BT), torch.from_numpy(output_BT), torch.from_numpy(mask_BT)


def _pad(rows: Sentences, pad: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad sentences of token ids to one array, with EOS after each; also return the mask, which is False at padding."""
    lengths_B = np.fromiter(map(len, rows), np.int64, len(rows))
    place_S = np.arange(lengths_B.max() + 1)
    ids_BS = np.full((len(rows), len(place_S)), pad, np.int64)
    ids_BS[place_S < lengths_B[:, None]] = np.concatenate(rows)
    ids_BS[np.arange(len(rows)), lengths_B] = EOS
    return ids_BS, place_S <= lengths_B[:, None]


@dataclass(frozen=True)
class DocumentBatch(TensorBatch):
    """Padded documents and their labels. A document is a list of U segments; each is one sentence or several."""

    ids_BUS: Tensor
    mask_BUS: Tensor
    target_BL: Tensor
    """1 for each label that a document has, 0 for the others."""
    index_B: Tensor
    """Indices of the documents in the store."""

    @property
    def target_tokens(self) -> int:
        """Number of documents, by which training divides the loss of a batch: here the loss is a sum over documents."""
        return len(self.target_BL)


def make_documents(
    documents: Sequence[Sentences], pad: int, window: int = 0, labels: Sequence[Sequence[int]] = (), count: int = 0,
    index: Index | None = None,
) -> DocumentBatch:  # fmt: skip
    """Make a padded batch of documents, each given as its sentences of token ids. `pad`: id of the padding token.

    `window`: 0: each sentence is a segment; else consecutive sentences are joined into segments of at most `window`
    tokens. `labels`: the label indices of each document. `count`: the number of labels that exist. `index`: the indices
    of the documents in the store; default: 0, 1, ...
    """
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
    """The lengths of the segments of a document whose sentences have the lengths `lengths`.

    With `window` 0, each sentence is a segment; else consecutive sentences are joined up to `window` tokens.
    """
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
    """The number of an epoch (the first is 0), and the index of its first batch in the endless stream of batches."""

    epoch: int
    position: int


START = BatchPosition(0, 0)


class BatchStream:
    """The endless stream of training batches. A batch is an array of the indices of its items (pairs or documents).

    In every epoch, each item is used as often as the weight of its corpus says. Process r of n takes the positions p
    with p % n == r, so that n processes together use the same batches as one process.
    """

    def __init__(
        self,
        lengths: tuple[Ids, Ids],
        budget: int,
        seed: int,
        weights: Sequence[StorePart] = (),
        known: BatchPosition = START,
    ):
        """`known`: an epoch and its start, as returned by `mark`, before which no batch will be read.

        The other arguments are those of `epoch_batches`.
        """
        if not len(lengths[0]):
            raise TrainingError(
                "nothing to train on: every pair has an empty side or exceeds data.max_length; check the data"
            )
        self._marks = [known]
        self._plan = lru_cache(maxsize=1)(lambda epoch: epoch_batches(lengths, budget, seed, epoch, weights))

    def at(self, position: int) -> Index:
        """The batch at this position of the stream: the indices of its items."""
        mark = self.mark(position)
        return self._plan(mark.epoch)[position - mark.position]

    def mark(self, position: int) -> BatchPosition:
        """The epoch that contains `position`, and the position at which this epoch starts."""
        while (last := self._marks[-1]).position <= position:  # the number of batches is known once an epoch is planned
            self._marks.append(BatchPosition(last.epoch + 1, last.position + len(self._plan(last.epoch))))
        place = bisect(self._marks, position, key=lambda mark: mark.position) - 1
        if place < 0:
            raise ValueError(f"batch {position} is before batch {self._marks[0].position}, the first of this stream")
        return self._marks[place]


def epoch_batches(
    lengths: tuple[Ids, Ids], budget: int, seed: int, epoch: int, weights: Sequence[StorePart] = ()
) -> list[Index]:
    """The batches of epoch number `epoch`, in the order of training, as arrays of item indices.

    `lengths`: number of source tokens and number of target tokens of each item. `weights`: the corpora and how often
    their items are used; empty: every item once. A batch has at most `budget` tokens: the number of its items times the
    length of its longest source or target, with EOS or SOS. An item with more tokens is a batch of its own. The items
    of a batch have similar source lengths and similar target lengths. The result depends only on the arguments.
    """
    chance = np.random.Generator(np.random.PCG64([seed % (1 << 64), epoch]))
    order = chance.permutation(_epoch_items(len(lengths[0]), weights, chance))  # the order within equal lengths
    source, target = (side[order].astype(np.int32) for side in lengths)
    longest, difference = np.maximum(source, target) + 1, source - target  # 1: EOS or SOS
    row = longest + (chance.random(len(order)) < JITTER)
    width = np.int64(2 * longest.max(initial=0) + 1)
    # Differences are in descending order for every second length, so that neighbors always have similar differences.
    by_length = np.argsort(row * width + np.where(row % 2, difference, -difference), kind="stable")
    order, longest = order[by_length], longest[by_length]
    batches = [order[start:end] for start, end in pairwise(batch_bounds(longest, budget))]
    return [batches[place] for place in chance.permutation(len(batches))]


def in_batches(lengths: Sequence[int], budget: int, *, skip_empty: bool = False) -> list[list[int]]:
    """Divide sequences of these lengths, longest first, into batches of at most `budget` tokens including padding.

    A batch is a list of indices of sequences. `skip_empty`: leave out sequences of length 0.
    """
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(-sizes, kind="stable")
    if skip_empty:
        order = order[sizes[order] > 0]
    return [order[start:end].tolist() for start, end in pairwise(batch_bounds(sizes[order], budget))]


def batch_bounds(lengths: NDArray[np.integer], budget: int) -> list[int]:
    """Divide consecutive rows into batches: batch n has the rows result[n] to result[n + 1] - 1.

    `lengths`: those of the rows. In a batch, the number of rows times the largest length is at most `budget`. An
    empty row counts as length 1, and a row longer than `budget` is a batch of its own.
    """
    lengths = np.maximum(lengths, 1)
    bounds = [0]
    row_numbers = np.arange(1, budget + 1)
    while (start := bounds[-1]) < len(lengths):
        window = lengths[start : start + max(1, budget // int(lengths[start]))]
        sizes = np.maximum.accumulate(window) * row_numbers[: len(window)]
        bounds.append(start + max(1, int(np.searchsorted(sizes, budget, side="right"))))
    return bounds


def _epoch_items(pairs: int, weights: Sequence[StorePart], chance: np.random.Generator) -> Index:
    """The indices of the items of an epoch, from a store of `pairs` items whose corpora have the weights `weights`.

    Weight 2.3 means that each item occurs twice, and once more with probability 0.3. `chance`: random generator.
    """
    items, start = [], 0
    for end, weight in weights or (StorePart(pairs, 1.0),):
        part = np.arange(start, end)
        items += [part] * int(weight)
        if weight % 1:
            items.append(part[chance.random(len(part)) < weight % 1])
        start = end
    return np.concatenate(items)
