"""How well word vectors predict the words around each word of a text: the loss of training, and an accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from regard.models.skip_gram import SkipGram, negative_sampling_loss
from regard.tasks.embed.blocks import BlockBatch, BlockSampler
from regard.tasks.embed.data import join_texts

TEXTS = 1000
"""Number of texts that are scored together."""
HELD_OUT = 1
"""Part of the random seed of all scores, so that their noise words are not those of training."""


class PairScore(NamedTuple):
    """Sums over pairs of words within a window. Each pair is compared with the noise words of its block."""

    loss: float
    hits: float
    """Sum of the shares of noise words that have a lower score than the true context; a tie counts one half."""
    pairs: float

    def as_dict(self) -> dict[str, float]:
        """Loss per pair, pair accuracy, and the number of pairs."""
        pairs = max(self.pairs, 1.0)
        return {"pair_accuracy": self.hits / pairs, "loss": self.loss / pairs, "pairs": round(self.pairs)}


def sum_pairs(scores: Iterable[PairScore]) -> PairScore:
    """Add up the scores of several batches."""
    return PairScore(*map(sum, zip(PairScore(0.0, 0.0, 0.0), *scores, strict=True)))


@torch.no_grad()
def score_batch(model: SkipGram, batch: BlockBatch) -> PairScore:
    """Score the pairs of a batch."""
    batch = batch.to(model.output.weight.device)
    window_RQC = batch.window_RQC
    scores_RQN = model(batch)
    loss = float(negative_sampling_loss(scores_RQN, window_RQC, batch.noise_weight_RQ))
    true_RQC, noise_RQK = scores_RQN.split([window_RQC.shape[2], batch.noise_RK.shape[1]], dim=2)
    row, center, place = window_RQC.nonzero(as_tuple=True)
    true_N1, noise_NK = true_RQC[row, center, place][:, None], noise_RQK[row, center]
    above = (true_N1 > noise_NK).sum() + 0.5 * (true_N1 == noise_NK).sum()
    return PairScore(loss, float(above) / noise_NK.shape[1], float(len(row)))


def score_texts(
    model: SkipGram, texts: Sequence[Sequence[int]], sampler: BlockSampler, rank: int = 0, every: int = 1
) -> PairScore:
    """Score texts, given as the ids of their words. One of `every` processes scores its share of the batches."""
    starts = range(rank * TEXTS, len(texts), every * TEXTS)
    return sum_pairs(
        score_batch(model, sampler.sample(*join_texts(texts[start : start + TEXTS]), start, HELD_OUT))
        for start in starts
    )
