"""Words as pieces: what a tagger reads, encoded and joined into tensors.

A sentence is to its words what a document is to its sentences, so labelled sentences are stored as documents are
(`document_store.py`): a word is a row of pieces, and a sentence has as many labels as words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import Tag
from regard.data.document_store import Sentences, make_documents
from regard.data.tokenizer import EOS, SOS, Tokenizer

OVERLAP = 5
"""Stretches of a long sentence share a part in so many of their words on each side, to be read in and not answered."""


@dataclass(frozen=True)
class TagBatch:
    """Sentences of words of pieces, and the words' labels if they have any."""

    ids_BTS: Tensor
    mask_BTS: Tensor
    target_BT: Tensor
    """Number of each word's label; 0 on padding, and where there are none."""
    index_B: Tensor
    """Which sentences these are."""

    @property
    def mask_BT(self) -> Tensor:
        """True where a word is real."""
        return self.mask_BTS[:, :, 0]

    @property
    def target_tokens(self) -> int:
        """What the loss is summed over: words."""
        return int(self.mask_BT.sum())

    def to(self, device: torch.device | str) -> TagBatch:
        """The same on another device."""
        return TagBatch(
            self.ids_BTS.to(device), self.mask_BTS.to(device), self.target_BT.to(device), self.index_B.to(device)
        )

    def rows(self, index_R: Tensor) -> TagBatch:
        """Some of the sentences, padded as before."""
        return TagBatch(self.ids_BTS[index_R], self.mask_BTS[index_R], self.target_BT[index_R], self.index_B[index_R])


def make_words(
    sentences: Sequence[Sentences], pad: int, labels: Sequence[Sequence[int]] = (),
    index: NDArray[np.int64] | None = None,
) -> TagBatch:  # fmt: skip
    """Join sentences, each a list of words as pieces, into tensors. `labels` are numbers, one a word."""
    made = make_documents(sentences, pad, index=index)
    target_BT = torch.zeros(made.mask_BUS.shape[:2], dtype=torch.int64)
    if labels:
        target_BT[made.mask_BUS[:, :, 0]] = torch.tensor(list(chain.from_iterable(labels)), dtype=torch.int64)
    return TagBatch(made.ids_BUS, made.mask_BUS, target_BT, made.index_B)


def encode_words(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, settings: Tag) -> list[list[list[int]]]:
    """The pieces of each word of each sentence, between marks of its beginning and its end."""
    distinct = list(dict.fromkeys(chain.from_iterable(sentences)))
    pieces = dict(zip(distinct, tokenizer.encode_many(distinct), strict=True))
    words = {word: [SOS, *_without_middle(ids, settings.word_pieces), EOS] for word, ids in pieces.items()}
    return [[words[word] for word in sentence] for sentence in sentences]


def _without_middle(ids: list[int], most: int) -> list[int]:
    return ids if len(ids) <= most else ids[: (most + 1) // 2] + ids[-(most // 2) :]


class Stretch(NamedTuple):
    """Words `start` to `end` of a sentence are read together; labels are taken for those from `first` to `last`."""

    start: int
    end: int
    first: int
    last: int


def stretches(length: int, most: int) -> Iterator[Stretch]:
    """How a sentence of so many words is read with at most so many at a time. Each word is answered once."""
    margin = 0 if length <= most else most // OVERLAP
    start = first = 0
    while first < length:
        end = min(start + most, length)
        last = length if end == length else end - margin
        yield Stretch(start, end, first, last)
        start, first = last - margin, last
