"""Training of encoder-decoders on pairs of texts: batches, loss, and the loss of held-out pairs.

The loss is that of teacher forcing or, in reward fine-tuning, a reward of the model's own outputs
(reward_training.py).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.config import DataSettings, Recipe
from regard.data.batches import Batch, Index, batch_bounds, make_batch
from regard.data.pairs import Pair
from regard.data.store import TokenStore
from regard.errors import TrainingError
from regard.layers.auxiliary import target_padding
from regard.layers.dropout import batch_seed
from regard.models.base import Network, Seq2Seq
from regard.tasks.dataset import StreamTrainUnit
from regard.tasks.rewards import objective_of
from regard.text.subword_regularization import resample
from regard.text.tokenizer import Tokenizer
from regard.training.distributed import ProcessGroup
from regard.training.flops import pair_amounts
from regard.training.loss import Loss, smoothed_cross_entropy

if TYPE_CHECKING:
    from regard.tasks.reward_training import RewardObjective

VALID_BATCH_PAIRS = 64


@dataclass(frozen=True)
class PairData:
    """Data for training on text pairs: source and target tokenizer, encoded training pairs, held-out pairs as text."""

    source: Tokenizer
    target: Tokenizer
    train: TokenStore
    valid: list[Pair]
    test: list[Pair]


class TeacherForcing(StreamTrainUnit):
    """Base class of `TrainUnit`s for next-token prediction: has `loss` and `flops`; subclasses add the batches."""

    def loss(self, model: Seq2Seq, batch: Batch) -> Loss:
        """Cross-entropy; if the model is in training mode, with label smoothing and R-Drop as set in the recipe."""
        settings = self.recipe.train
        if not model.training:
            return batch_loss(model, batch)
        if not settings.r_drop:
            return batch_loss(model, batch, settings.label_smoothing)
        both = batch_loss(model, batch.twice(), settings.label_smoothing, settings.r_drop)
        return Loss(both.smoothed / 2, both.plain / 2, both.tokens // 2)

    def flops(self, batch: Batch) -> float:
        rows, source_length = batch.source.mask_BS.shape  # ids may be pixels, with more axes
        passes = 2 if self.recipe.train.r_drop else 1
        return passes * self.cost.training(**pair_amounts(rows, source_length, batch.target_input_BT.shape[1]))


class Seq2SeqTrainUnit(TeacherForcing):
    """Base class of `TrainUnit`s for text pairs: makes their batches; subclasses add `validate`."""

    data: PairData
    reward: RewardObjective | None = None

    def __init__(self, recipe: Recipe, data: PairData, model: Network, group: ProcessGroup | None = None):
        super().__init__(recipe, data, model, group, data.train.lengths, data.train.weights)
        if objective_of(recipe).by_reward:
            from regard.tasks.reward_training import RewardObjective

            self.reward = RewardObjective(recipe, data.source, data.target)

    def batch(self, position: int) -> Batch:
        """The batch with the index `position` in the endless stream of training batches.

        With `tokenizer.subword_regularization`, the segmentation of each text into tokens is sampled, except during
        the cooldown of the learning rate, and in reward fine-tuning, where texts are segmented as in use.
        """
        index, source, target = self.stream.at(position), self.data.source, self.data.target
        if self.reward:
            return replace(self.join(index), seed=batch_seed(self.recipe.train.seed, position))
        share = self.recipe.tokenizer.subword_regularization * self.stage.augmentation_strength
        if not share:
            return self.join(index)
        draw = random.Random(f"{self.recipe.train.seed} {position}")
        sampled = [
            (resample(source, one.tolist(), share, draw), resample(target, other.tolist(), share, draw))
            for one, other in map(self.data.train.__getitem__, index)
        ]
        return make_batch(sampled, source.pad, target.pad, index)

    def join(self, index: Index) -> Batch:
        pairs = [self.data.train[place] for place in index]
        return make_batch(pairs, self.data.source.pad, self.data.target.pad, index)

    def loss(self, model: Seq2Seq, batch: Batch) -> Loss:
        """Cross-entropy (see `TeacherForcing.loss`); in reward fine-tuning, the loss of `RewardObjective`."""
        if self.reward is None or not model.training:
            return super().loss(model, batch)
        return self.reward.loss(model, batch)

    def flops(self, batch: Batch) -> float:
        return super().flops(batch) + (self.reward.flops(batch, self.cost) if self.reward else 0.0)

    def valid_loss(self, model: Seq2Seq) -> float:
        """Mean negative log-likelihood per target token on the validation pairs."""
        limit = self.recipe.data.max_length
        return mean_loss(model, self.data.source, self.data.target, self.data.valid, self.group, max_length=limit)


def batch_loss(model: Seq2Seq, batch: Batch, smoothing: float = 0.0, agreement: float = 0.0) -> Loss:
    """Cross-entropy summed over target tokens. `smoothing`: label smoothing; `agreement`: weight of the R-Drop term."""
    real = batch.target_mask_BT
    with target_padding(real):
        states_ND = model.hidden(batch.source, batch.target_input_BT)[real]
    return smoothed_cross_entropy(model.output, states_ND, batch.target_output_BT[real], smoothing, agreement)


@torch.no_grad()
def mean_loss(
    model: Seq2Seq,
    source: Tokenizer,
    target: Tokenizer,
    pairs: Sequence[Pair],
    group: ProcessGroup | None = None,
    *,
    max_length: int = DataSettings.max_length,
) -> float:
    """Mean negative log-likelihood per target token of `pairs`; `model` must be in evaluation mode.

    Pairs whose source or target has more than `max_length` tokens are left out, as in training, to limit memory.
    """
    group, device = group or ProcessGroup(), model.output.weight.device
    total, tokens = 0.0, 0.0
    for first in group.share(range(0, len(pairs), VALID_BATCH_PAIRS)):
        some = pairs[first : first + VALID_BATCH_PAIRS]
        encoded = ((source.encode(pair.source), target.encode(pair.target)) for pair in some)
        ids = [sides for sides in encoded if max(map(len, sides)) <= max_length]
        longest = np.array([max(map(len, sides)) + 1 for sides in ids], np.int64)
        # 16,384 bounds the number of pairs in a batch times the length of the longer side.
        for start, end in pairwise(batch_bounds(longest, 16_384)):
            loss = batch_loss(model, make_batch(ids[start:end], source.pad, target.pad).to(device))
            total, tokens = total + float(loss.plain), tokens + loss.tokens
    total, tokens = group.sum(total, tokens)
    if not tokens:
        raise TrainingError(
            f"every held-out pair has a source or target of more than {max_length} tokens; raise data.max_length"
        )
    return total / tokens
