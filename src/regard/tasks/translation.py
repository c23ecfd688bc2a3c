"""How translation is learnt: batches of sentence pairs, their loss, and validation by translating."""

from __future__ import annotations

import random

from regard.config import Recipe
from regard.data.batch import Batch, BatchStream, make_batch
from regard.data.sampling import resample
from regard.models.base import Seq2Seq
from regard.tasks.evaluate import quick_scores
from regard.tasks.prepare import Prepared
from regard.tasks.translate import Translator, texts_of
from regard.training.flops import count_cost
from regard.training.loop import Validation
from regard.training.loss import Loss, smoothed_cross_entropy

VALID_BATCH_PAIRS = 64
SAMPLES = 3


class TranslationTask:
    """What the loop must know of translation."""

    def __init__(self, recipe: Recipe, prepared: Prepared, model: Seq2Seq):
        self.recipe, self.data = recipe, prepared
        self.cost = count_cost(model)
        store = prepared.train
        self.stream = BatchStream(store.lengths, recipe.train.batch_tokens, recipe.train.seed, store.weights)
        kept = recipe.train.valid_sentences or len(prepared.valid)
        self.translated = prepared.valid[:kept]

    def batch(self, position: int) -> Batch:
        """The pairs at this place of the stream, with other subwords each time if that was asked for."""
        index = self.stream.at(position)
        pairs = [self.data.train[place] for place in index]
        source, target = self.data.source, self.data.target
        strength = self.recipe.tokenizer.sampling
        if not strength:
            return make_batch(pairs, source.pad, target.pad, index)
        draw = random.Random(f"{self.recipe.train.seed} {position}")
        others = [
            (resample(source, one.tolist(), strength, draw), resample(target, other.tolist(), strength, draw))
            for one, other in pairs
        ]
        return make_batch(others, source.pad, target.pad, index)

    def loss(self, model: Seq2Seq, batch: Batch) -> Loss:
        """Of the real target tokens; padding is left out before the vocabulary is scored."""
        settings = self.recipe.train
        if not model.training:
            return self._loss(model, batch, smoothing=0.0)
        if not settings.r_drop:
            return self._loss(model, batch, settings.label_smoothing)
        both = self._loss(model, batch.twice(), settings.label_smoothing, settings.r_drop)
        return Loss(both.smoothed / 2, both.plain / 2, both.tokens // 2)

    def _loss(self, model: Seq2Seq, batch: Batch, smoothing: float, agreement: float = 0.0) -> Loss:
        real = batch.target_mask_BT
        states_ND = model.hidden(batch.source, batch.target_input_BT)[real]
        return smoothed_cross_entropy(model.output, states_ND, batch.target_output_BT[real], smoothing, agreement)

    def flops(self, batch: Batch) -> float:
        """Arithmetic of one update on this batch."""
        rows, source_length = batch.source.ids_BS.shape
        passes = 2 if self.recipe.train.r_drop else 1
        return passes * self.cost.training(rows, source_length, batch.target_input_BT.shape[1])

    def validate(self, model: Seq2Seq) -> Validation:
        """Loss over the validation pairs; BLEU and chrF over the first of them, translated greedily."""
        scores = {"loss": self._valid_loss(model)}
        translator = Translator(model, self.data.source, self.data.target, self.recipe.search)
        answers = translator.translate([pair.source for pair in self.translated], beam=1)
        scores |= quick_scores(texts_of(answers), [pair.target for pair in self.translated])
        samples = [
            {"source": pair.source, "translation": answer.text, "reference": pair.target}
            for pair, answer in zip(self.translated[:SAMPLES], answers[:SAMPLES], strict=True)
        ]
        metric = self.recipe.train.metric
        return Validation(scores, -scores["loss"] if metric == "loss" else scores[metric], samples)

    def _valid_loss(self, model: Seq2Seq) -> float:
        source, target = self.data.source, self.data.target
        total, tokens = 0.0, 0
        for first in range(0, len(self.data.valid), VALID_BATCH_PAIRS):
            pairs = self.data.valid[first : first + VALID_BATCH_PAIRS]
            ids = [(source.encode(pair.source), target.encode(pair.target)) for pair in pairs]
            loss = self.loss(model, make_batch(ids, source.pad, target.pad))
            total, tokens = total + float(loss.plain), tokens + loss.tokens
        return total / tokens
