"""Training of classifiers: batches, loss, validation and calibration, for every kind of input (inputs.py)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import Recipe
from regard.data.batches import DocumentBatch, Index
from regard.errors import SettingsError
from regard.models.base import ClassifierModel, Network
from regard.run import Run
from regard.tasks.bootstrap import ratio_metric
from regard.tasks.classify.classifier import Classifier, load, score_inputs, score_logits, target_of
from regard.tasks.classify.inputs import (
    LabeledExample,
    LabeledExamples,
    PreparedExamples,
    kind_of,
    kind_of_records,
    kind_of_run,
)
from regard.tasks.classify.settings import ClassifySettings
from regard.tasks.dataset import StreamTrainUnit
from regard.tasks.labels import balanced, find_temperature, label_loss
from regard.tasks.training import HELD_OUT_EXAMPLES, Json, Log, Scored, Tables, Training, Workload
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss
from regard.training.plan import PlannedSetting
from regard.training.trainer import Validation

TUNED = "classify.temperature"
AnyExamples = LabeledExamples[Any]
AnyPrepared = PreparedExamples[Any]


class ClassifyTrainUnit(StreamTrainUnit):
    data: AnyPrepared

    def __init__(self, recipe: Recipe, data: AnyPrepared, model: Network, group: ProcessGroup | None = None):
        store = data.train
        super().__init__(recipe, data, model, group, (store.tokens, np.zeros_like(store.tokens)), store.weights)
        self.window = recipe.model.document_window
        self.valid = data.reader.encode([one.content for one in data.valid])
        self.weights_L: Tensor | None = None
        if recipe.task.class_weights == "balanced":
            self.weights_L = balanced(store.label_counts(len(data.labels)))

    def batch(self, position: int) -> DocumentBatch:
        """The batch at `position` (counted in batches) of the training stream, with random changes."""
        seed = self.recipe.train.seed % (1 << 64), position
        return self.data.batch(self.stream.at(position), seed, self.stage.strength)

    def join(self, index: Index) -> DocumentBatch:
        return self.data.batch(index)

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
            read = documents * segments
            return self.cost.training(document=documents, sentence=read, token=read * size, pair=read * size**2)
        sentences, tokens = int(batch.mask_BUS.any(-1).sum()), int(batch.mask_BUS.sum())
        return self.cost.training(document=documents, sentence=sentences, token=tokens)

    def validate(self, model: ClassifierModel) -> Validation:
        """Compute loss, accuracy and macro F1 on the validation examples, which are divided among the processes."""
        encoded = [self.valid[place] for place in self.group.share(range(len(self.valid)))]
        mine = score_inputs(model, self.data.reader, encoded, self.recipe)
        logits_BL = torch.tensor(self.group.join(mine.tolist()), dtype=torch.float64)
        settings = dataclasses.replace(self.recipe.task, temperature=1.0)
        found = score_logits(logits_BL, self.data.valid, self.data.labels, settings)
        scores = {"loss": found.loss, "accuracy": found.accuracy, "f1": found.f1}
        metric = self.recipe.train.metric
        return Validation(scores, -found.loss if metric == "loss" else scores[metric])


class ClassifyTraining(Training[AnyExamples, AnyPrepared]):
    train_unit = ClassifyTrainUnit
    result = (
        "accuracy {accuracy:.2%}  macro F1 {f1:.2%}  calibration error {calibration_error:.2%}"
        "  on {examples:,} examples"
    )

    def read(self, recipe: Recipe) -> AnyExamples:
        return kind_of(recipe).read_examples(recipe)

    def inherited(self, base: Run, given: Tables) -> dict[str, Any]:
        """Without the folder of the pictures: the new examples have their own."""
        table = super().inherited(base, given)
        table.get("pictures", {}).pop("images", None)
        return table

    def plan(self, examples: AnyExamples, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        return examples.plan(given)

    def sizes(self, recipe: Recipe, examples: AnyExamples) -> dict[str, int]:
        return examples.sizes(recipe) | {"labels": len(examples.labels)}

    def workload(self, recipe: Recipe, examples: AnyExamples) -> Workload:
        return examples.workload(recipe)

    def prepare(self, run: Run, recipe: Recipe, examples: AnyExamples, log: Log, base: Run | None) -> None:
        labels, unit = base.labels if base else examples.labels, examples.parts.unit
        for example in examples.parts.train():
            if unknown := set(example.labels) - set(labels):
                known = ", ".join([*labels[:8], *(["..."] if len(labels) > 8 else [])])
                raise SettingsError(
                    f'the label "{min(unknown)}" is unknown to the run that is fine-tuned (its labels: {known}); '
                    f"remove the {unit} with this label, or train a new run"
                )
            if len(example.labels) != 1 and not recipe.task.multi_label:
                raise SettingsError(
                    f"a training {unit.removesuffix('s')} has {len(example.labels)} labels instead of one; "
                    "set classify.multi_label = true to allow this"
                )
        run.write_labels(labels)
        examples.prepare(run, log, base)
        examples.write(run, log)

    def open_data(self, run: Run, log: Log) -> AnyPrepared:
        return kind_of_run(run).open_examples(run, log)

    def expected_initial_loss(self, recipe: Recipe, data: AnyPrepared) -> float:
        count = len(data.labels)  # 2 is added since a batch may be a single example with a confident mistake
        return 2.0 + (count * math.log(2) if recipe.task.multi_label else math.log(count))

    def card(self, recipe: Recipe, data: AnyPrepared, base: Run | None) -> Json:
        counts = data.train.label_counts(len(data.labels)).tolist()
        return data.card() | {"labels": dict(zip(data.labels, counts, strict=True))}

    def held_out(self, data: AnyPrepared) -> list[Json]:
        return data.records((data.test or data.valid)[:HELD_OUT_EXAMPLES])

    def score(self, predictor: Classifier, examples: Sequence[LabeledExample]) -> Scored:
        found = predictor.score(examples)
        given = [one.labels for one in predictor.classify([example.content for example in examples])]
        right = (set(one) == set(example.labels) for one, example in zip(given, examples, strict=True))
        return Scored(found.as_dict(), None, ratio_metric("accuracy", ((one, 1) for one in right)))

    def from_records(self, records: Sequence[Json]) -> Sequence[LabeledExample]:
        return kind_of_records(records).from_records(records)

    def train_examples(self, examples: AnyExamples) -> Iterable[LabeledExample]:
        return examples.parts.train()

    def texts(self, example: LabeledExample) -> tuple[str, ...]:
        return example.texts

    def tune(self, run: Run, data: AnyPrepared, log: Log) -> Json:
        """Tune the calibration temperature on the validation examples, unless the user has set it.

        Writes the temperature into the recipe of the run, and returns it as an entry for card.json: {} if it was not
        tuned, because the user has set it or there are too few examples.
        """
        settings: ClassifySettings = run.recipe.task
        if settings.temperature not in (ClassifySettings().temperature, run.card.get("tuned", {}).get(TUNED)):
            return {}
        logits_BL = load(run.folder).logits([example.content for example in data.valid])
        found = find_temperature(logits_BL, target_of(data.valid, data.labels), several=settings.multi_label)
        if found is None:
            return {}
        changed = dataclasses.replace(settings, temperature=round(found, 4))
        run.write_recipe(dataclasses.replace(run.recipe, task=changed))
        log(f"temperature {found:.2f}, found on the validation part")
        return {TUNED: changed.temperature}


TRAINING = ClassifyTraining()
