"""Training of classifiers: batches of documents, their loss, validation and calibration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.config import Recipe
from regard.data.batches import DocumentBatch, make_documents
from regard.layers.dropout import Rows
from regard.models.base import ClassifierModel, Network
from regard.run import Run
from regard.tasks.classify import ClassifySettings
from regard.tasks.classify.classifier import Classifier, load, score_documents, target_of, window_of
from regard.tasks.classify.data import (
    LabelledDocument,
    PreparedDocuments,
    TrainingDocuments,
    as_record,
    encode_document,
    open_documents,
    prepare_documents,
)
from regard.tasks.classify.plan import make_document_plan
from regard.tasks.dataset import StreamTrainUnit
from regard.tasks.labels import balanced, find_temperature, label_loss, score_labels, to_probabilities
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.text.tokenizer import EOS, UNK
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost
from regard.training.loss import Loss
from regard.training.plan import PlannedSetting
from regard.training.trainer import Validation

HELD_OUT_DOCUMENTS = 200
"""Held-out documents that stay in a finished run."""
TUNED = "classify.temperature"


class ClassifyTrainUnit(StreamTrainUnit):
    """Batches of documents, their loss, and validation."""

    def __init__(
        self, recipe: Recipe, prepared: PreparedDocuments, model: ClassifierModel, group: ProcessGroup | None = None
    ):
        store = prepared.train
        super().__init__(recipe.train, (store.tokens, np.zeros_like(store.tokens)), store.weights)
        self.recipe, self.data, self.group = recipe, prepared, group or ProcessGroup()
        self.cost = count_cost(model)
        self.window = window_of(recipe)
        self.valid = [encode_document(one.text, prepared.tokenizer, recipe.task) for one in prepared.valid]
        self.weights_L: Tensor | None = None
        if recipe.task.class_weights == "balanced":
            self.weights_L = balanced(store.label_counts(len(prepared.labels)))

    def batch(self, position: int) -> DocumentBatch:
        """The documents at this position of the stream, each time with other words replaced by UNK (word dropout)."""
        settings = self.recipe.train
        batch = self._join(self.stream.at(position))
        hidden = self.recipe.task.word_dropout * self.stage.strength
        if not hidden:
            return batch
        chance = np.random.Generator(np.random.PCG64([settings.seed % (1 << 64), position]))
        drawn_BUS = torch.from_numpy(chance.random(batch.ids_BUS.shape, np.float32)) < hidden
        batch.ids_BUS[drawn_BUS & batch.mask_BUS & (batch.ids_BUS != EOS)] = UNK
        return batch

    def largest(self) -> DocumentBatch:
        """The largest batch of the first epoch, padding included."""
        return self._join(self.largest_of(lambda index: len(index) * int(self.lengths[0][index].max())))

    def rows(self, batch: DocumentBatch, first: int, every: int) -> tuple[DocumentBatch, Rows]:
        """Every n-th document, from the first on."""
        rows = Rows.deal(len(batch.index_B), first, every)
        return batch.rows(rows.index_R), rows

    def loss(self, model: ClassifierModel, batch: DocumentBatch) -> Loss:
        """Cross-entropy of the labels."""
        classify, smoothing = self.recipe.task, self.recipe.train.label_smoothing if model.training else 0.0
        weights_L = self.weights_L if model.training else None
        weights_L = None if weights_L is None else weights_L.to(batch.target_BL.device)
        return label_loss(
            model(batch), batch.target_BL, several=classify.multi_label, smoothing=smoothing, weights_L=weights_L
        )

    def flops(self, batch: DocumentBatch) -> float:
        """Arithmetic of one step on this batch. A window is computed with its padding, sentences without."""
        documents, segments, size = batch.mask_BUS.shape
        if self.window:
            pairs = documents * segments * size**2
            return self.cost.training(document=documents, token=batch.mask_BUS.numel(), pair=pairs)
        sentences, tokens = int(batch.mask_BUS.any(-1).sum()), int(batch.mask_BUS.sum())
        return self.cost.training(document=documents, sentence=sentences, token=tokens)

    def validate(self, model: ClassifierModel) -> Validation:
        """Loss, accuracy and F1 over the validation documents."""
        settings, labels = self.recipe.task, self.data.labels
        logits_BL = self._gather_logits(model)
        probability_BL = to_probabilities(logits_BL, 1.0, several=settings.multi_label).numpy()
        target_BL = target_of(self.data.valid, labels).numpy() > 0
        found = score_labels(
            probability_BL, target_BL, labels, several=settings.multi_label, threshold=settings.threshold
        )
        scores = {"loss": found.loss, "accuracy": found.accuracy, "f1": found.f1}
        metric = self.recipe.train.metric
        return Validation(scores, -found.loss if metric == "loss" else scores[metric])

    def _gather_logits(self, model: ClassifierModel) -> Tensor:
        """Scores of all validation documents; each process computes a share of them."""
        share = self.group.share(range(len(self.valid)))
        documents = [self.valid[place].sentences for place in share]
        mine = score_documents(model, documents, self.data.tokenizer.pad, self.recipe)
        return torch.tensor(self.group.join(mine.tolist()), dtype=torch.float64)

    def _join(self, index: np.ndarray) -> DocumentBatch:
        store = self.data.train
        sentences, labels = zip(*(store[int(place)] for place in index), strict=True)
        return make_documents(sentences, self.data.tokenizer.pad, self.window, labels, len(self.data.labels), index)


class ClassifyTraining(Training[TrainingDocuments, PreparedDocuments]):
    """From files of labelled documents to a classifier."""

    def read(self, recipe: Recipe) -> TrainingDocuments:
        """Read the files."""
        return TrainingDocuments(recipe.data, recipe.train.seed)

    def plan(self, examples: TrainingDocuments, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """By the number of documents, their lengths and labels."""
        return make_document_plan(examples.facts, machine, given)

    def sizes(self, recipe: Recipe, examples: TrainingDocuments) -> dict[str, int]:
        """The vocabulary has the size that the settings ask for."""
        return {"vocabulary": recipe.tokenizer.vocab_size, "labels": examples.facts.labels}

    def workload(self, recipe: Recipe, examples: TrainingDocuments) -> Workload:
        """Documents of mean length, in sentences of 20 tokens."""
        data = examples.facts
        tokens = round(min(data.tokens, recipe.task.max_tokens))
        pairs = tokens * recipe.model.document_window
        amounts = {"document": 1, "sentence": max(tokens // 20, 1), "token": tokens, "pair": pairs}
        return Workload({unit: data.documents * count for unit, count in amounts.items()}, tokens)

    def prepare(self, run: Run, recipe: Recipe, examples: TrainingDocuments, log: Log, base: Run | None) -> None:
        """Vocabulary, labels, token ids and held-out documents."""
        prepare_documents(run, recipe, examples, log, base)

    def open_data(self, run: Run, log: Log) -> PreparedDocuments:
        """From the run's own folder."""
        return open_documents(run, log)

    def train_unit(
        self, recipe: Recipe, data: PreparedDocuments, model: Network, group: ProcessGroup | None = None
    ) -> ClassifyTrainUnit:
        """Batches of documents."""
        assert isinstance(model, ClassifierModel)
        return ClassifyTrainUnit(recipe, data, model, group)

    def expected_initial_loss(self, recipe: Recipe, data: PreparedDocuments) -> float:
        """The loss of guessing with a margin: a batch may be a single long document with a confident mistake."""
        count = len(data.labels)
        return 2.0 + (count * math.log(2) if recipe.task.multi_label else math.log(count))

    def card(self, recipe: Recipe, data: PreparedDocuments, base: Run | None) -> Json:
        """Labels and numbers of documents."""
        counts = data.train.label_counts(len(data.labels)).tolist()
        return {
            "vocabulary": data.tokenizer.size,
            "documents": {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
            "labels": dict(zip(data.labels, counts, strict=True)),
        }

    def tune(self, run: Run, data: PreparedDocuments, log: Log) -> Json:
        """Find the temperature on the validation part and write it into the recipe.

        A temperature that the user has set stays; one that was found before is found again.
        """
        settings: ClassifySettings = run.recipe.task
        if settings.temperature not in (ClassifySettings().temperature, run.card.get("tuned", {}).get(TUNED)):
            return {}
        logits_BL = load(run.folder).logits([document.text for document in data.valid])
        target_BL = target_of(data.valid, data.labels)
        found = find_temperature(logits_BL, target_BL, several=settings.multi_label)
        if found is None:
            return {}
        changed = dataclasses.replace(settings, temperature=round(found, 4))
        run.write_recipe(dataclasses.replace(run.recipe, task=changed))
        log(f"temperature {found:.2f}, found on the validation part")
        return {TUNED: changed.temperature}

    def score(self, predictor: Classifier, examples: Sequence[LabelledDocument]) -> Scored:
        """Accuracy, F1 and calibration."""
        return Scored(predictor.score(examples).as_dict())

    def held_out(self, data: PreparedDocuments) -> list[Json]:
        """Of the test part, if there is one."""
        return [as_record(one) for one in (data.test or data.valid)[:HELD_OUT_DOCUMENTS]]

    def result_line(self, part: str, scores: Json) -> str:
        """Accuracy, F1 and calibration."""
        return (
            f"accuracy {scores['accuracy']:.2%}  macro F1 {scores['f1']:.2%}  calibration error"
            f" {scores['calibration_error']:.2%}  on {scores['documents']:,} documents"
        )

    def complete(self, run: Run, data: PreparedDocuments) -> None:
        """Close the store."""
        data.train.close()


TRAINING = ClassifyTraining()
