"""Classification as a kind of run: labelled documents in, calibrated probabilities, scores and a report out."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar

import torch

from regard.config import ClassifySettings, Recipe
from regard.errors import SettingsError
from regard.models import build, presets
from regard.models.base import ClassifierModel, Network, count_parameters
from regard.run import Run
from regard.tasks.classify.classifier import load
from regard.tasks.classify.data import (
    PreparedDocuments,
    TrainingDocuments,
    as_record,
    prepare_documents,
    reopen_documents,
)
from regard.tasks.classify.plan import make_document_plan
from regard.tasks.classify.report import write_label_report
from regard.tasks.classify.training import ClassifyTrainUnit, target_of
from regard.tasks.contract import Kind, Log, Tables
from regard.tasks.labels import find_temperature
from regard.training.checkpoint import TrainingProgress
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost
from regard.training.plan import COPIES, FLOAT, PROCESS, SHARE_OF_PEAK, Estimate, PlannedSetting

METRICS = ("accuracy", "f1", "loss")
HELD_OUT_DOCUMENTS = 200
"""Kept in a finished run, to look at and to measure by."""


class ClassifyTraining(Kind[TrainingDocuments, PreparedDocuments]):
    """What documents are about, or what they think of it."""

    defaults: ClassVar[Tables] = {
        "model": {"arch": "han"},
        "tokenizer": {"kind": "word", "lowercase": True, "vocab_size": 30_000},
        "train": {"metric": "accuracy", "batch_tokens": 8192},
    }
    unit = "documents"

    def check(self, recipe: Recipe) -> None:
        """Architecture, metric, and nothing that is for models that write."""
        if recipe.model.kind != "classifier":
            known = ", ".join(presets("classifier"))
            raise SettingsError(f'model.arch = "{recipe.model.arch}" does not classify documents; choose from {known}')
        if recipe.train.metric not in METRICS:
            known = ", ".join(METRICS)
            raise SettingsError(f'train.metric = "{recipe.train.metric}" is for translation; choose from {known}')
        for name in ("r_drop", "fsdp"):
            if getattr(recipe.train, name):
                raise SettingsError(f"train.{name} is for models that write text; leave it out")

    def read(self, recipe: Recipe) -> TrainingDocuments:
        """Read the files."""
        return TrainingDocuments(recipe.data, recipe.train.seed)

    def plan(self, examples: TrainingDocuments, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """By the number of documents, their lengths and labels."""
        return make_document_plan(examples.collection, machine, given)

    def estimate(self, recipe: Recipe, examples: TrainingDocuments, machine: Machine) -> Estimate:
        """On this machine."""
        data = examples.collection
        with torch.device("meta"):
            model = build(recipe.model, vocabulary=recipe.tokenizer.vocab_size, labels=data.labels)
        tokens = round(min(data.tokens, recipe.classify.max_tokens))
        pairs = tokens * recipe.model.document_window
        cost = count_cost(model)
        flops = data.documents * cost.training(document=1, sentence=max(tokens // 20, 1), token=tokens, pair=pairs)
        parameters = count_parameters(model)
        kept = recipe.train.batch_tokens * FLOAT * recipe.model.kept_per_token(tokens)
        memory = PROCESS + COPIES * FLOAT * parameters + kept
        return Estimate(parameters, memory, flops, flops / (SHARE_OF_PEAK * machine.peak))

    def prepare(
        self, run: Run, recipe: Recipe, examples: TrainingDocuments, log: Log, base: Run | None
    ) -> PreparedDocuments:
        """Vocabulary, labels, token ids and held-out documents."""
        return prepare_documents(run, recipe, examples, log, base)

    def reopen(self, run: Run, log: Log) -> PreparedDocuments:
        """From the run's own folder."""
        return reopen_documents(run, log)

    def task(
        self, recipe: Recipe, prepared: PreparedDocuments, model: Network, group: ProcessGroup | None = None
    ) -> ClassifyTrainUnit:
        """Batches of documents."""
        assert isinstance(model, ClassifierModel)
        return ClassifyTrainUnit(recipe, prepared, model, group)

    def expected_initial_loss(self, recipe: Recipe, prepared: PreparedDocuments) -> float:
        """That of guessing, and some more: a batch may be one long document, which can be mistaken for sure."""
        count = len(prepared.labels)
        return 2.0 + (count * math.log(2) if recipe.classify.multi_label else math.log(count))

    def card(self, recipe: Recipe, prepared: PreparedDocuments, base: Run | None) -> dict[str, Any]:
        """Labels and numbers of documents."""
        counts = prepared.train.label_counts(len(prepared.labels)).tolist()
        return {
            "task": "classify",
            "vocabulary": prepared.tokenizer.size,
            "documents": {"train": len(prepared.train), "valid": len(prepared.valid), "test": len(prepared.test)},
            "labels": dict(zip(prepared.labels, counts, strict=True)),
        }

    def finish(self, run: Run, prepared: PreparedDocuments, progress: TrainingProgress, log: Log) -> None:
        """Find the temperature, score, report."""
        tuned = calibrate(run, prepared, log)
        classifier = load(run.folder)
        parts = {"valid": prepared.valid, "test": prepared.test}
        scores = {part: classifier.score(documents).as_dict() for part, documents in parts.items() if documents}
        learnt = {"parameters": count_parameters(classifier.model), "scores": scores, "tuned": tuned}
        run.write_card(run.card | learnt | {"training": dataclasses.asdict(progress)})
        held_out = prepared.test or prepared.valid
        run.write_held_out([as_record(one) for one in held_out[:HELD_OUT_DOCUMENTS]])
        write_label_report(run, classifier, held_out)
        prepared.train.close()
        run.put_store_away()

    def result(self, run: Run) -> list[str]:
        """Accuracy, F1 and calibration."""
        scores = [
            f"{part}: accuracy {found['accuracy']:.2%}  macro F1 {found['f1']:.2%}  calibration error"
            f" {found['calibration_error']:.2%}  on {found['documents']:,} documents"
            for part, found in run.card.get("scores", {}).items()
        ]
        look = f'look at {run.folder / "report.html"}, or "regard classify {run.folder}"'
        return [*scores, f"the run is in {run.folder}; {look}"]

    def folder(self, recipe: Recipe) -> Path:
        """Named after the file."""
        name = Path(recipe.data.train[0].source).name.partition(".")[0]
        return Path("runs") / (f"{name}-{recipe.model.arch}" if name else recipe.model.arch)


def calibrate(run: Run, prepared: PreparedDocuments, log: Log) -> dict[str, Any]:
    """Put the temperature that the validation part asks for into the recipe, and give what the card says of it.

    One that the user has set stays; one that was found before is found anew.
    """
    settings = run.recipe.classify
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
    run.write_recipe(dataclasses.replace(run.recipe, classify=changed))
    log(f"temperature {found:.2f}, found on the validation part")
    return {"classify.temperature": changed.temperature}
