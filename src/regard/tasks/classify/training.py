"""Training of classifiers: the plan, batches of documents, loss, validation and calibration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.config import Recipe
from regard.data.batches import DocumentBatch, make_documents
from regard.data.store import open_documents
from regard.errors import SettingsError
from regard.models.base import ClassifierModel, Network
from regard.run import Run
from regard.tasks.bootstrap import ratio_metric
from regard.tasks.classify.classifier import Classifier, load, score_documents, score_logits, target_of
from regard.tasks.classify.data import (
    DocumentFacts,
    LabeledDocument,
    PreparedDocuments,
    TrainingDocuments,
    encode_document,
    sentences_of,
    write_store,
)
from regard.tasks.classify.settings import ClassifySettings
from regard.tasks.dataset import HELD_OUT, StreamTrainUnit, learn_tokenizer, open_store_folder, read_held_out
from regard.tasks.labels import balanced, find_temperature, label_loss
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.text.tokenizer import EOS, UNK
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss
from regard.training.plan import PlannedSetting, choose_batch, choose_learning_rate, choose_length, leave_given
from regard.training.trainer import Validation

TUNED = "classify.temperature"


class ClassifyTrainUnit(StreamTrainUnit):
    data: PreparedDocuments

    def __init__(self, recipe: Recipe, data: PreparedDocuments, model: Network, group: ProcessGroup | None = None):
        store = data.train
        super().__init__(recipe, data, model, group, (store.tokens, np.zeros_like(store.tokens)), store.weights)
        self.window = recipe.model.document_window
        self.valid = [encode_document(one.text, data.tokenizer, recipe.task) for one in data.valid]
        self.weights_L: Tensor | None = None
        if recipe.task.class_weights == "balanced":
            self.weights_L = balanced(store.label_counts(len(data.labels)))

    def batch(self, position: int) -> DocumentBatch:
        """The batch at `position` (counted in batches) of the training stream, with some tokens replaced by UNK."""
        batch = self.join(self.stream.at(position))
        if hidden := self.recipe.task.word_dropout * self.stage.strength:
            chance = np.random.Generator(np.random.PCG64([self.recipe.train.seed % (1 << 64), position]))
            drawn_BUS = torch.from_numpy(chance.random(batch.ids_BUS.shape, np.float32)) < hidden
            batch.ids_BUS[drawn_BUS & batch.mask_BUS & (batch.ids_BUS != EOS)] = UNK
        return batch

    def loss(self, model: ClassifierModel, batch: DocumentBatch) -> Loss:
        target_BL, several = batch.target_BL, self.recipe.task.multi_label
        if not model.training:
            return label_loss(model(batch), target_BL, several=several)
        weights_L = None if self.weights_L is None else self.weights_L.to(target_BL.device)
        smoothing = self.recipe.train.label_smoothing
        return label_loss(model(batch), target_BL, several=several, smoothing=smoothing, weights_L=weights_L)

    def flops(self, batch: DocumentBatch) -> float:
        documents, segments, size = batch.mask_BUS.shape
        if self.window:  # a model that reads windows also computes padding
            pairs = documents * segments * size**2
            return self.cost.training(document=documents, token=batch.mask_BUS.numel(), pair=pairs)
        sentences, tokens = int(batch.mask_BUS.any(-1).sum()), int(batch.mask_BUS.sum())
        return self.cost.training(document=documents, sentence=sentences, token=tokens)

    def validate(self, model: ClassifierModel) -> Validation:
        """Compute loss, accuracy and macro F1 on the validation documents, which are divided among the processes."""
        documents = [self.valid[place].sentences for place in self.group.share(range(len(self.valid)))]
        mine = score_documents(model, documents, self.data.tokenizer.pad, self.recipe)
        logits_BL = torch.tensor(self.group.join(mine.tolist()), dtype=torch.float64)
        settings = dataclasses.replace(self.recipe.task, temperature=1.0)
        found = score_logits(logits_BL, self.data.valid, self.data.labels, settings)
        scores = {"loss": found.loss, "accuracy": found.accuracy, "f1": found.f1}
        metric = self.recipe.train.metric
        return Validation(scores, -found.loss if metric == "loss" else scores[metric])

    def join(self, index: np.ndarray) -> DocumentBatch:
        store = self.data.train
        sentences, labels = zip(*(store[int(place)] for place in index), strict=True)
        return make_documents(sentences, self.data.tokenizer.pad, self.window, labels, len(self.data.labels), index)


class ClassifyTraining(Training[TrainingDocuments, PreparedDocuments]):
    train_unit = ClassifyTrainUnit
    result = (
        "accuracy {accuracy:.2%}  macro F1 {f1:.2%}  calibration error {calibration_error:.2%}"
        "  on {documents:,} documents"
    )

    def read(self, recipe: Recipe) -> TrainingDocuments:
        return TrainingDocuments(recipe.data, recipe.train.seed)

    def plan(self, examples: TrainingDocuments, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        return make_document_plan(examples.facts, given)

    def sizes(self, recipe: Recipe, examples: TrainingDocuments) -> dict[str, int]:
        return {"vocabulary": recipe.tokenizer.vocab_size, "labels": examples.facts.labels}

    def workload(self, recipe: Recipe, examples: TrainingDocuments) -> Workload:
        """Estimate the amount of computation per epoch, as if all documents had mean length and sentences 20 tokens."""
        data = examples.facts
        tokens = round(min(data.tokens, recipe.task.max_tokens))
        pairs = tokens * recipe.model.document_window
        amounts = {"document": 1, "sentence": max(tokens // 20, 1), "token": tokens, "pair": pairs}
        return Workload({unit: data.documents * count for unit, count in amounts.items()}, tokens)

    def prepare(self, run: Run, recipe: Recipe, examples: TrainingDocuments, log: Log, base: Run | None) -> None:
        labels = base.labels if base else examples.labels
        for document in examples.parts.train():
            if unknown := set(document.labels) - set(labels):
                known = ", ".join([*labels[:8], *(["..."] if len(labels) > 8 else [])])
                raise SettingsError(
                    f'the label "{min(unknown)}" is unknown to the run that is fine-tuned (its labels: {known}); '
                    "remove the documents with this label, or train a new run"
                )
            if len(document.labels) != 1 and not recipe.task.multi_label:
                raise SettingsError(
                    f"a training document has {len(document.labels)} labels instead of one; "
                    "set classify.multi_label = true to allow this"
                )
        run.write_labels(labels)
        texts = (line for one in examples.parts.train() for line in sentences_of(one.text, recipe.task))
        learn_tokenizer(run, recipe, texts, log, base, labels=len(labels))
        write_store(run, examples, log)

    def open_data(self, run: Run, log: Log) -> PreparedDocuments:
        folder = open_store_folder(run, lambda: write_store(run, self.read(run.recipe), log))
        valid, test = (self.from_records(read_held_out(folder, part, "documents")) for part in HELD_OUT)
        return PreparedDocuments(run.tokenizers[0], open_documents(folder / "train"), valid, test, run.labels)

    def expected_initial_loss(self, recipe: Recipe, data: PreparedDocuments) -> float:
        count = len(data.labels)  # 2 is added since a batch may be a single document with a confident mistake
        return 2.0 + (count * math.log(2) if recipe.task.multi_label else math.log(count))

    def card(self, recipe: Recipe, data: PreparedDocuments, base: Run | None) -> Json:
        counts = data.train.label_counts(len(data.labels)).tolist()
        return {
            "vocabulary": data.tokenizer.size,
            "documents": {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
            "labels": dict(zip(data.labels, counts, strict=True)),
        }

    def score(self, predictor: Classifier, examples: Sequence[LabeledDocument]) -> Scored:
        found = predictor.score(examples)
        given = [one.labels for one in predictor.classify([document.text for document in examples])]
        right = (set(one) == set(document.labels) for one, document in zip(given, examples, strict=True))
        return Scored(found.as_dict(), None, ratio_metric("accuracy", ((one, 1) for one in right)))

    def from_records(self, records: Sequence[Json]) -> list[LabeledDocument]:
        return [LabeledDocument(tuple(one["labels"]), one["text"]) for one in records]

    def train_examples(self, examples: TrainingDocuments) -> Iterable[LabeledDocument]:
        return examples.parts.train()

    def texts(self, example: LabeledDocument) -> tuple[str, ...]:
        return (example.text,)

    def tune(self, run: Run, data: PreparedDocuments, log: Log) -> Json:
        """Tune the calibration temperature on the validation documents, unless the user has set it.

        Writes the temperature into the recipe of the run, and returns it as an entry for card.json: {} if it was not
        tuned, because the user has set it or there are too few documents.
        """
        settings: ClassifySettings = run.recipe.task
        if settings.temperature not in (ClassifySettings().temperature, run.card.get("tuned", {}).get(TUNED)):
            return {}
        logits_BL = load(run.folder).logits([document.text for document in data.valid])
        found = find_temperature(logits_BL, target_of(data.valid, data.labels), several=settings.multi_label)
        if found is None:
            return {}
        changed = dataclasses.replace(settings, temperature=round(found, 4))
        run.write_recipe(dataclasses.replace(run.recipe, task=changed))
        log(f"temperature {found:.2f}, found on the validation part")
        return {TUNED: changed.temperature}


def make_document_plan(data: DocumentFacts, given: Tables) -> list[PlannedSetting]:
    arch = given.get("model", {}).get("arch", "han")
    choices = list(_choose_settings(data, arch))
    chosen = {choice.name: choice.value for choice in choices}
    longest = given.get("classify", {}).get("max_tokens", chosen["classify.max_tokens"])
    documents = 32 if data.documents >= 2_000 else 16  # per batch; an epoch of few documents needs enough steps
    wanted = documents * min(data.tokens, longest)
    batch, epoch = choose_batch(given, wanted, least=256, examples=data.documents, length=data.tokens, unit="documents")
    growing = "dropout grows: a model that has learned nothing cannot overfit"
    warmup = PlannedSetting("train.regularization_warmup", min(max(2 * epoch, 200), 1500), growing)
    every = min(max(epoch // 2, 50), 2000)
    most = max(12 * epoch, 20 * every)  # a model of a small corpus overfits long before
    choices += [batch, warmup, *choose_length(epoch, validate_every=every, patience=6, max_steps=most)]
    return leave_given(choices, given)


def _choose_settings(data: DocumentFacts, arch: str) -> Iterator[PlannedSetting]:
    is_uneven = data.several or data.rarest < 0.5 / data.labels
    if data.several:
        yield PlannedSetting("classify.multi_label", True, "some documents have several labels, or none")
    wanted = data.long * data.tokens_per_word
    longest = min(max(50 * math.ceil(wanted / 50), 100), 600)
    reason = "19 of 20 documents are shorter" if longest >= wanted else "the middle of longer documents is left out"
    yield PlannedSetting("classify.max_tokens", longest, reason)
    if is_uneven and not data.several:
        yield PlannedSetting("classify.class_weights", "balanced", f"the rarest of {data.labels} labels is infrequent")
    if data.by_words:
        words = data.documents * data.words
        size = int(min(max(12 * math.sqrt(words), 500), 50_000)) // 100 * 100
        count = f"{words / 1e6:.1f} million" if words >= 1e6 else f"{round(words, -3):,.0f}"
        yield PlannedSetting("tokenizer.kind", "word", "attention weights are shown per word")
        yield PlannedSetting("tokenizer.lowercase", True, "the first word of a sentence is the same word")
        yield PlannedSetting("tokenizer.vocab_size", size, f"{count} words: those that occur at least about five times")
    else:
        yield PlannedSetting("tokenizer.kind", "bpe", "subwords: spaces do not divide this text into words")
        yield PlannedSetting("tokenizer.vocab_size", 8000, "few enough that each subword is seen often")
    yield PlannedSetting("model.arch", arch, "attention over words and over sentences, and both can be shown")
    small, large = data.documents < 5_000, data.documents >= 200_000
    if arch == "han":
        reason = f"{data.documents:,} documents"
        yield PlannedSetting("model.embedding_width", 64 if small else 200 if large else 128, reason)
        yield PlannedSetting("model.width", 32 if small else 100 if large else 64, reason)
    dropout = 0.2 if large else 0.5 if arch == "han" else 0.3
    yield PlannedSetting("model.dropout", dropout, "the less data, the more dropout")
    reason = "rare labels count as much as others" if is_uneven else "labels are about equally frequent"
    yield PlannedSetting("train.metric", "f1" if is_uneven else "accuracy", reason)
    yield from choose_learning_rate(3e-3, 100, 0.2, muon=arch == "transformer-classifier")
    word_dropout = 0.2 if data.words >= 30 else 0.1
    yield PlannedSetting("classify.word_dropout", word_dropout, "so that no single word decides alone")


TRAINING = ClassifyTraining()
