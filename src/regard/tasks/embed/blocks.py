"""Batches of skip-gram: blocks of consecutive words, their windows and their noise words.

Frequent words are left out at random, before the windows are measured. The words that remain are divided into blocks of
`BLOCK` words. For each center, the window is a random number of words on either side, which never crosses the border of
a text. `NOISE` noise words are drawn per block and shared by its centers; each has the weight that makes the sum of
weights the same as with `negatives` noise words per pair.

All random numbers depend only on the seed and on the position of the batch in the stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batches import TensorBatch
from regard.data.store import Ids
from regard.tasks.embed.settings import EmbedSettings

BLOCK = 32
"""Number of centers in a block. A larger block computes more scores outside of all windows; a smaller one reads more
noise words per center."""
NOISE = 32
"""Number of noise words per block: about as many as a center gets with the usual settings, 5 for each of 6 pairs."""


@dataclass(frozen=True)
class BlockBatch(TensorBatch):
    """R blocks of Q centers; C contexts and K noise words per block (`regard.models.skip_gram.TextBlocks`)."""

    centers_RQ: Tensor
    contexts_RC: Tensor
    noise_RK: Tensor
    window_RQC: Tensor
    """True for pairs of a center and a word in its window."""
    noise_weight_RQ: Tensor
    """Weight of each noise word for each center; 0 for padding."""
    index_B: Tensor
    """Numbers of the blocks."""

    @property
    def target_tokens(self) -> int:
        """Number of pairs, by which training divides the loss of a batch."""
        return int(self.window_RQC.sum())


class BlockSampler:
    """Makes batches of blocks from texts. `counts` are the counts of the words in the training texts, by id."""

    def __init__(self, counts: NDArray[np.int64], settings: EmbedSettings, seed: int, pad: int):
        self.settings, self.pad, self._seed = settings, pad, seed % (1 << 64)
        self._kept = keep_probabilities(counts, settings.subsample)
        weights = np.where(counts > 0, counts, 0).astype(np.float64) ** settings.noise_power * (counts > 0)
        self._noise = np.cumsum(weights / weights.sum())
        place_C = np.arange(BLOCK + 2 * settings.window)
        self._distance_QC = np.abs(place_C - settings.window - np.arange(BLOCK)[:, None])

    def sample(self, ids: Ids, lengths: NDArray[np.integer], *position: int) -> BlockBatch:
        """Make a batch of texts: their ids one after another, and the length of each. At least one has two words."""
        chance = np.random.Generator(np.random.PCG64([self._seed, *position]))
        text = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        kept = chance.random(len(ids)) < self._kept[ids]
        batch = self._blocks(ids[kept], text[kept], chance)
        return batch if batch.window_RQC.any() else self._blocks(ids, text, chance)

    def _blocks(self, ids: Ids, text: NDArray[np.int32], chance: np.random.Generator) -> BlockBatch:
        window, count = self.settings.window, len(ids)
        blocks = max(-(-count // BLOCK), 1)
        reach_RQ = np.zeros((blocks, BLOCK), np.int64)  # 0 for padding
        reach_RQ.reshape(-1)[:count] = chance.integers(1, window + 1, count)
        contexts_RC, text_RC = (
            _overlapping(values, blocks, window, fill) for values, fill in ((ids, self.pad), (text, -1))
        )
        inner = slice(window, window + BLOCK)
        near_RQC = (self._distance_QC <= reach_RQ[:, :, None]) & (self._distance_QC > 0)
        near_RQC &= text_RC[:, None, :] == text_RC[:, inner, None]
        noise_RK = np.searchsorted(self._noise, chance.random((blocks, NOISE)), side="right")
        noise_RK = np.minimum(noise_RK, len(self._noise) - 1)
        weight_RQ = near_RQC.sum(2, dtype=np.float32) * np.float32(self.settings.negatives / NOISE)
        return BlockBatch(
            torch.from_numpy(contexts_RC[:, inner].copy()),
            torch.from_numpy(contexts_RC),
            torch.from_numpy(noise_RK),
            torch.from_numpy(near_RQC),
            torch.from_numpy(weight_RQ),
            torch.arange(blocks),
        )


def _overlapping(values: NDArray[np.integer], blocks: int, window: int, fill: int) -> NDArray[np.int64]:
    """Divide `values` into blocks that also contain the `window` values before and after: [R, C]."""
    padded = np.full(blocks * BLOCK + 2 * window, fill, np.int64)
    padded[window : window + len(values)] = values
    return padded[np.arange(blocks)[:, None] * BLOCK + np.arange(BLOCK + 2 * window)]


def keep_probabilities(counts: NDArray[np.int64], threshold: float) -> NDArray[np.float64]:
    """For each word, the probability that an occurrence is kept: sqrt(t / f) + t / f for a word of share f, at most 1.

    This is the formula of the word2vec program. A word without occurrences is kept.
    """
    if not threshold:
        return np.ones(len(counts))
    share = np.maximum(counts, 1e-9) / max(int(counts.sum()), 1)
    return np.minimum(np.sqrt(threshold / share) + threshold / share, 1.0)
