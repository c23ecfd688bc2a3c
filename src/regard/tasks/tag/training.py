"""Training of taggers: batches of sentences, their loss, validation, and what the card and the terminal say of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from regard.config import Recipe
from regard.data.batches import in_batches
from regard.layers.dropout import Rows
from regard.models.base import Network, TaggerModel
from regard.run import Run
from regard.tasks.dataset import StreamTrainUnit
from regard.tasks.tag.conll import TaggedSentence
from regard.tasks.tag.data import (
    PreparedSentences,
    TagBatch,
    TrainingSentences,
    encode_words,
    make_words,
    open_sentences,
    prepare_sentences,
)
from regard.tasks.tag.plan import make_tag_plan
from regard.tasks.tag.scores import score_tags
from regard.tasks.tag.spans import learnt_scheme, rewrite
from regard.tasks.tag.tagger import LabelScheme, Tagger, tag_sentences
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost
from regard.training.loss import Loss
from regard.training.plan import PlannedSetting
from regard.training.trainer import Validation

HELD_OUT_SENTENCES = 200
"""Held-out sentences that stay in a finished run."""


class TagTrainUnit(StreamTrainUnit):
    """Batches of sentences, their loss, and validation."""

    def __init__(
        self, recipe: Recipe, prepared: PreparedSentences, model: TaggerModel, group: ProcessGroup | None = None
    ):
        store = prepared.train
        super().__init__(recipe.train, (store.sentence_counts, np.zeros_like(store.sentence_counts)), store.weights)
        self.recipe, self.data, self.group = recipe, prepared, group or ProcessGroup()
        self.cost = count_cost(model)
        self.labelling = LabelScheme(prepared.labels, recipe.task)

    def batch(self, position: int) -> TagBatch:
        """The sentences at this position of the stream."""
        return self._join(self.stream.at(position))

    def largest(self) -> TagBatch:
        """The largest batch of the first epoch, padding included."""
        return self._join(self.largest_of(lambda index: len(index) * int(self.lengths[0][index].max())))

    def rows(self, batch: TagBatch, first: int, every: int) -> tuple[TagBatch, Rows]:
        """Every n-th sentence, starting with the first given."""
        rows = Rows.deal(len(batch.index_B), first, every)
        return batch.rows(rows.index_R), rows

    def loss(self, model: TaggerModel, batch: TagBatch) -> Loss:
        """Negative log-likelihood of the labels under the CRF."""
        smoothing = self.recipe.train.label_smoothing if model.training else 0.0
        logits_BTL = model(batch)
        smoothed = model.crf.negative_log_likelihood(logits_BTL, batch.target_BT, batch.mask_BT, smoothing).sum()
        plain = smoothed.detach()
        if smoothing:
            with torch.no_grad():
                plain = model.crf.negative_log_likelihood(logits_BTL, batch.target_BT, batch.mask_BT).sum()
        return Loss(smoothed, plain, batch.target_tokens)

    def flops(self, batch: TagBatch) -> float:
        """Operations of one step on this batch."""
        rows, words = batch.mask_BT.shape
        pieces = int(batch.mask_BTS.sum())
        return self.cost.training(piece=pieces, word=int(batch.mask_BT.sum()), pair=rows * words**2)

    def validate(self, model: TaggerModel) -> Validation:
        """Loss, accuracy and F1 over the validation sentences."""
        share = self.group.share(range(len(self.data.valid)))
        mine = [self.data.valid[place] for place in share]
        given = self.group.join(
            tag_sentences(model, [one.tokens for one in mine], self.data.tokenizer, self.recipe.task, self.labelling)
        )
        found = score_tags([one.tags for one in self.data.valid], [one.tags for one in given], self.labelling.scheme)
        scores = {"accuracy": found.accuracy, "f1": found.f1, "loss": self._valid_loss(model, mine)}
        if found.span_f1 is not None:
            scores = {"span_f1": found.span_f1} | scores
        metric = self.recipe.train.metric
        counts = "span_f1" if metric == "f1" and "span_f1" in scores else metric
        return Validation(scores, -scores["loss"] if counts == "loss" else scores[counts])

    def _valid_loss(self, model: TaggerModel, sentences: Sequence[TaggedSentence]) -> float:
        """Mean loss per word of sentences whose labels are all known."""
        number = {label: place for place, label in enumerate(self.data.labels)}
        learnt = learnt_scheme(self.labelling.scheme)
        short = (one for one in sentences if len(one.tags) <= self.recipe.task.max_words)
        rewritten = [TaggedSentence(one.tokens, rewrite(one.tags, learnt)) for one in short]
        known = [one for one in rewritten if number.keys() >= set(one.tags)]
        total = words = 0.0
        device = model.output.weight.device
        for places in in_batches([len(one.tags) for one in known], self.recipe.task.batch_words):
            chosen = [known[place] for place in places]
            encoded = encode_words([one.tokens for one in chosen], self.data.tokenizer, self.recipe.task)
            labels = [[number[tag] for tag in one.tags] for one in chosen]
            batch = make_words(encoded, self.data.tokenizer.pad, labels).to(device)
            total += float(self.loss(model, batch).plain)
            words += batch.target_tokens
        total, words = self.group.sum(total, words)
        return total / max(words, 1.0)

    def _join(self, index: np.ndarray) -> TagBatch:
        store = self.data.train
        sentences, labels = zip(*(store[int(place)] for place in index), strict=True)
        return make_words(sentences, self.data.tokenizer.pad, labels, index)


class TagTraining(Training[TrainingSentences, PreparedSentences]):
    """From files of labelled words to a tagger."""

    def read(self, recipe: Recipe) -> TrainingSentences:
        """Read the files."""
        return TrainingSentences(recipe.data, recipe.task, recipe.train.seed)

    def plan(self, examples: TrainingSentences, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """By the number of sentences, their words and labels."""
        return make_tag_plan(examples.facts, machine, given)

    def sizes(self, recipe: Recipe, examples: TrainingSentences) -> dict[str, int]:
        """The vocabulary has the size that the settings ask for."""
        return {"vocabulary": recipe.tokenizer.vocab_size, "labels": examples.facts.labels}

    def workload(self, recipe: Recipe, examples: TrainingSentences) -> Workload:
        """Words of mean length, each with a mark before and after it."""
        facts = examples.facts
        words = round(facts.total)
        pieces = round(words * (facts.word_length + 2))
        return Workload({"piece": pieces, "word": words, "pair": round(facts.words) * words}, facts.words)

    def prepare(self, run: Run, recipe: Recipe, examples: TrainingSentences, log: Log, base: Run | None) -> None:
        """Vocabulary, labels, pieces and held-out sentences."""
        prepare_sentences(run, recipe, examples, log, base)

    def open_data(self, run: Run, log: Log) -> PreparedSentences:
        """From the run's own folder."""
        return open_sentences(run, log)

    def train_unit(
        self, recipe: Recipe, data: PreparedSentences, model: Network, group: ProcessGroup | None = None
    ) -> TagTrainUnit:
        """Batches of sentences."""
        assert isinstance(model, TaggerModel)
        return TagTrainUnit(recipe, data, model, group)

    def expected_initial_loss(self, recipe: Recipe, data: PreparedSentences) -> float:
        """That of guessing, with a margin."""
        return 2.0 + math.log(len(data.labels))

    def card(self, recipe: Recipe, data: PreparedSentences, base: Run | None) -> Json:
        """Numbers of sentences and words, and the labels."""
        counts = data.train.label_counts(len(data.labels)).tolist()
        labelling = LabelScheme(data.labels, recipe.task)
        before = base.card.get("clitics", ()) if base else ()
        return {
            "vocabulary": data.tokenizer.size,
            "sentences": {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
            "words": sum(counts),
            "scheme": labelling.scheme,
            "labels": labelling.merged(counts),
            "clitics": list(dict.fromkeys((*before, *data.clitics))),
        }

    def score(self, predictor: Tagger, examples: Sequence[TaggedSentence]) -> Scored:
        """Accuracy, F1 of labels and of spans, calibration."""
        return Scored(predictor.score(examples).as_dict())

    def held_out(self, data: PreparedSentences) -> list[Json]:
        """Of the test part, if there is one."""
        return [one._asdict() for one in (data.test or data.valid)[:HELD_OUT_SENTENCES]]

    def result_line(self, part: str, scores: Json) -> str:
        """F1 of spans, or accuracy."""
        size = f"on {scores['words']:,} words of {scores['sentences']:,} sentence{'s' * (scores['sentences'] != 1)}"
        accuracy = f"accuracy {scores['accuracy']:.2%}"
        if "span_f1" not in scores:
            return f"{accuracy}  macro F1 {scores['f1']:.2%}  {size}"
        spans = f"span F1 {scores['span_f1']:.2%}  precision {scores['precision']:.2%}"
        return f"{spans}  recall {scores['recall']:.2%}  {accuracy}  {size}"

    def complete(self, run: Run, data: PreparedSentences) -> None:
        """Close the store."""
        data.train.close()


TRAINING = TagTraining()
