"""Arithmetic of a tagger, counted from its architecture as in `flops.py`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regard.layers.attention import SelfAttention
from regard.layers.crf import Chain
from regard.layers.spelling import Spelling
from regard.models.base import Tagger
from regard.training.flops import BACKWARD


@dataclass(frozen=True)
class TagCost:
    """Operations of one forward pass: a piece, a word, and a pair of words that see each other."""

    piece: float = 0.0
    word: float = 0.0
    pair: float = 0.0

    def training(self, pieces: int, words: int, pairs: int) -> float:
        """Forward and backward, of a batch with so many of each."""
        return (1 + BACKWARD) * (self.piece * pieces + self.word * words + self.pair * pairs)


def count_tag_cost(model: Tagger) -> TagCost:
    """Count the matrix products; embeddings are looked up, not multiplied."""
    piece = word = pair = 0.0
    for module in model.modules():
        if isinstance(module, Spelling):
            piece += 2.0 * module.convolve.weight.numel()
            word -= 2.0 * module.convolve.weight.numel()  # which is counted below with the other maps
        if isinstance(module, SelfAttention):
            pair += 4.0 * module.outward.in_features
        if isinstance(module, nn.Linear):
            word += 2.0 * module.weight.numel()
        if isinstance(module, Chain):
            word += 2.0 * module.after.numel()
    return TagCost(piece, word, pair)
