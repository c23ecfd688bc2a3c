"""How translation is learnt: batches of sentence pairs, their loss, and validation by translating."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch

from regard.config import DataSettings, Recipe
from regard.data.batches import Batch, TokenSource, cut, make_batch
from regard.data.pairs import Pair
from regard.errors import TrainingError
from regard.layers.dropout import Rows
from regard.models.base import Seq2Seq
from regard.tasks.chat.data import readable
from regard.tasks.dataset import StreamTrainUnit
from regard.tasks.translate.data import PreparedPairs
from regard.tasks.translate.evaluate import quick_scores
from regard.tasks.translate.translator import Translator, texts_of
from regard.text.subword_regularization import resample
from regard.text.tokenizer import Tokenizer
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost, pair_amounts
from regard.training.loss import Loss, smoothed_cross_entropy
from regard.training.trainer import Validation

VALID_BATCH_PAIRS = 64
VALID_BATCH_TOKENS = 16_384
"""Pairs times the longer padded side; a batch of usual sentences stays far below."""
SAMPLES = 3


class TranslateTrainUnit(StreamTrainUnit):
    """What the loop must know of translation."""

    def __init__(self, recipe: Recipe, prepared: PreparedPairs, model: Seq2Seq, group: ProcessGroup | None = None):
        super().__init__(recipe.train, prepared.train.lengths, prepared.train.weights)
        self.recipe, self.data, self.group = recipe, prepared, group or ProcessGroup()
        self.cost = count_cost(model)
        kept = recipe.train.validation_sentences or len(prepared.valid)
        self.translated = prepared.valid[:kept]

    def batch(self, position: int) -> Batch:
        """The pairs at this place of the stream, with other subwords each time if that was asked for.

        While it cools down, words are cut as they will be when it translates: what was spent on other ways to spell
        them goes to the usual one (docs/log.md).
        """
        index = self.stream.at(position)
        pairs = [self.data.train[place] for place in index]
        source, target = self.data.source, self.data.target
        share = self.recipe.tokenizer.subword_regularization * self.stage.augmentation_strength
        if not share:
            return make_batch(pairs, source.pad, target.pad, index)
        draw = random.Random(f"{self.recipe.train.seed} {position}")
        others = [
            (resample(source, one.tolist(), share, draw), resample(target, other.tolist(), share, draw))
            for one, other in pairs
        ]
        return make_batch(others, source.pad, target.pad, index)

    def largest(self) -> Batch:
        """The largest batch of the first epoch, padding included."""
        data, (source, target) = self.data, self.lengths
        index = self.largest_of(lambda index: len(index) * (int(source[index].max()) + int(target[index].max()) + 2))
        return make_batch([data.train[place] for place in index], data.source.pad, data.target.pad, index)

    def rows(self, batch: Batch, first: int, every: int) -> tuple[Batch, Rows]:
        """Every so many rows, from the first on; padded as before, so that all processes see the same lengths."""
        rows = Rows.deal(len(batch.index_B), first, every)
        return take_rows(batch, rows.index_R), rows

    def loss(self, model: Seq2Seq, batch: Batch) -> Loss:
        """With smoothing and through two dropouts, if the settings say so, while it learns."""
        settings = self.recipe.train
        if not model.training:
            return batch_loss(model, batch)
        if not settings.r_drop:
            return batch_loss(model, batch, settings.label_smoothing)
        both = batch_loss(model, batch.twice(), settings.label_smoothing, settings.r_drop)
        return Loss(both.smoothed / 2, both.plain / 2, both.tokens // 2)

    def flops(self, batch: Batch) -> float:
        """Arithmetic of one step on this batch."""
        rows, source_length = batch.source.ids_BS.shape
        passes = 2 if self.recipe.train.r_drop else 1
        return passes * self.cost.training(**pair_amounts(rows, source_length, batch.target_input_BT.shape[1]))

    def validate(self, model: Seq2Seq) -> Validation:
        """Loss over the validation pairs; BLEU and chrF over the first of them, translated greedily."""
        loss, texts = self.valid_loss(model), self.write(model)
        return self.judged({"loss": loss} | quick_scores(texts, [pair.target for pair in self.translated]), texts)

    def judged(self, scores: dict[str, float], texts: Sequence[str]) -> Validation:
        """The scores, the one that counts, and some of the texts as samples."""
        samples = [
            {"source": readable(pair.source), "translation": text, "reference": pair.target}
            for pair, text in zip(self.translated[:SAMPLES], texts[:SAMPLES], strict=True)
        ]
        metric = self.recipe.train.metric
        score = -scores["loss"] if metric == "loss" else scores[metric]
        return Validation(scores, score, samples, loss=scores["loss"])

    def write(self, model: Seq2Seq) -> list[str]:
        """What the model makes of the first validation pairs, greedily."""
        translator = Translator(model, self.data.source, self.data.target, self.recipe.search)
        sources = [pair.source for pair in self.group.share(self.translated)]
        search = self.recipe.search
        answers = translator.translate(
            sources,
            sample=False,
            beam_size=1,
            beam_groups=1,
            coverage_penalty=0.0,  # needs a beam
            retry_failures=False,  # a model that has learned little may repeat itself
            max_joined_tokens=search.max_joined_tokens or search.max_source_tokens,  # lines are as those it learns from
        )
        return self.group.join(texts_of(answers))

    def valid_loss(self, model: Seq2Seq) -> float:
        """Of a token of the validation targets."""
        most = self.recipe.data.max_length
        return mean_loss(model, self.data.source, self.data.target, self.data.valid, self.group, max_length=most)


def batch_loss(model: Seq2Seq, batch: Batch, smoothing: float = 0.0, agreement: float = 0.0) -> Loss:
    """Of the real target tokens; padding is left out before the vocabulary is scored."""
    real = batch.target_mask_BT
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
    """Negative log-likelihood of a target token, by a model that is not being trained.

    Pairs with more than `max_length` tokens on a side are left out, as in training: one of them would decide how much
    memory a batch takes.
    """
    group, device = group or ProcessGroup(), model.output.weight.device
    total, tokens = 0.0, 0.0
    for first in group.share(range(0, len(pairs), VALID_BATCH_PAIRS)):
        some = pairs[first : first + VALID_BATCH_PAIRS]
        encoded = ((source.encode(pair.source), target.encode(pair.target)) for pair in some)
        for ids in _in_batches([sides for sides in encoded if max(map(len, sides)) <= max_length]):
            loss = batch_loss(model, make_batch(ids, source.pad, target.pad).to(device))
            total, tokens = total + float(loss.plain), tokens + loss.tokens
    total, tokens = group.sum(total, tokens)
    if not tokens:
        raise TrainingError(f"no held-out pair has at most {max_length} tokens on each side; raise data.max_length")
    return total / tokens


def _in_batches(pairs: list[tuple[list[int], list[int]]]) -> Iterator[list[tuple[list[int], list[int]]]]:
    """Encoded pairs in their order, in batches that a bounded amount of memory can hold."""
    longest = np.array([max(map(len, sides)) + 1 for sides in pairs], np.int64)
    return (pairs[start:end] for start, end in pairwise(cut(longest, VALID_BATCH_TOKENS)))


def take_rows(batch: Batch, index_R: torch.Tensor) -> Batch:
    """Some rows of a batch."""
    source = TokenSource(batch.source.ids_BS[index_R], batch.source.mask_BS[index_R])
    target_mask_RT = batch.target_mask_BT[index_R]
    return Batch(
        source=source,
        target_input_BT=batch.target_input_BT[index_R],
        target_output_BT=batch.target_output_BT[index_R],
        target_mask_BT=target_mask_RT,
        index_B=batch.index_B[index_R],
        source_tokens=int(source.mask_BS.sum()),
        target_tokens=int(target_mask_RT.sum()),
    )
