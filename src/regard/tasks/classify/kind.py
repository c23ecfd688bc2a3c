"""Classification as a kind of run: labelled documents in, calibrated probabilities, scores and a report out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from regard.config import Recipe
from regard.models.base import ClassifierModel, Network
from regard.run import Run
from regard.tasks.classify import ClassifySettings
from regard.tasks.classify.classifier import Classifier, load
from regard.tasks.classify.data import (
    LabelledDocument,
    PreparedDocuments,
    TrainingDocuments,
    as_record,
    prepare_documents,
    reopen_documents,
)
from regard.tasks.classify.plan import make_document_plan
from regard.tasks.classify.training import ClassifyTrainUnit, target_of
from regard.tasks.labels import find_temperature
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.plan import PlannedSetting

HELD_OUT_DOCUMENTS = 200
"""Kept in a finished run, to look at and to measure by."""


class ClassifyTraining(Training[TrainingDocuments, PreparedDocuments]):
    """What documents are about, or what they think of it."""

    def read(self, recipe: Recipe) -> TrainingDocuments:
        """Read the files."""
        return TrainingDocuments(recipe.data, recipe.train.seed)

    def plan(self, examples: TrainingDocuments, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """By the number of documents, their lengths and labels."""
        return make_document_plan(examples.collection, machine, given)

    def sizes(self, recipe: Recipe, examples: TrainingDocuments) -> dict[str, int]:
        """The vocabulary has the size that the settings ask for."""
        return {"vocabulary": recipe.tokenizer.vocab_size, "labels": examples.collection.labels}

    def workload(self, recipe: Recipe, examples: TrainingDocuments) -> Workload:
        """Documents of mean length, in sentences of 20 tokens."""
        data = examples.collection
        tokens = round(min(data.tokens, recipe.task.max_tokens))
        pairs = tokens * recipe.model.document_window
        amounts = {"document": 1, "sentence": max(tokens // 20, 1), "token": tokens, "pair": pairs}
        return Workload({unit: data.documents * count for unit, count in amounts.items()}, tokens)

    def prepare(self, run: Run, recipe: Recipe, examples: TrainingDocuments, log: Log, base: Run | None) -> None:
        """Vocabulary, labels, token ids and held-out documents."""
        made = prepare_documents(run, recipe, examples, log, base)
        run.write_sizes(vocabulary=made.tokenizer.size, labels=len(made.labels))
        made.train.close()

    def open_data(self, run: Run, log: Log) -> PreparedDocuments:
        """From the run's own folder."""
        return reopen_documents(run, log)

    def train_unit(
        self, recipe: Recipe, data: PreparedDocuments, model: Network, group: ProcessGroup | None = None
    ) -> ClassifyTrainUnit:
        """Batches of documents."""
        assert isinstance(model, ClassifierModel)
        return ClassifyTrainUnit(recipe, data, model, group)

    def expected_initial_loss(self, recipe: Recipe, prepared: PreparedDocuments) -> float:
        """That of guessing, and some more: a batch may be one long document, which can be mistaken for sure."""
        count = len(prepared.labels)
        return 2.0 + (count * math.log(2) if recipe.task.multi_label else math.log(count))

    def card(self, recipe: Recipe, prepared: PreparedDocuments, base: Run | None) -> dict[str, Any]:
        """Labels and numbers of documents."""
        counts = prepared.train.label_counts(len(prepared.labels)).tolist()
        return {
            "vocabulary": prepared.tokenizer.size,
            "documents": {"train": len(prepared.train), "valid": len(prepared.valid), "test": len(prepared.test)},
            "labels": dict(zip(prepared.labels, counts, strict=True)),
        }

    def tune(self, run: Run, data: PreparedDocuments, log: Log) -> Json:
        """The temperature."""
        return calibrate(run, data, log)

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


def calibrate(run: Run, prepared: PreparedDocuments, log: Log) -> dict[str, Any]:
    """Put the temperature that the validation part asks for into the recipe, and give what the card says of it.

    One that the user has set stays; one that was found before is found anew.
    """
    settings: ClassifySettings = run.recipe.task
    if settings.temperature not in (
        ClassifySettings().temperature,
        run.card.get("tuned", {}).get("classify.temperature"),
    ):
        return {}
    logits_BL = load(run.folder).logits([document.text for document in prepared.valid])
    target_BL = target_of(prepared.valid, prepared.labels)
    found = find_temperature(logits_BL, target_BL, several=settings.multi_label)
    if found is None:
        return {}
    changed = dataclasses.replace(settings, temperature=round(found, 4))
    run.write_recipe(dataclasses.replace(run.recipe, task=changed))
    log(f"temperature {found:.2f}, found on the validation part")
    return {"classify.temperature": changed.temperature}


TRAINING = ClassifyTraining()
