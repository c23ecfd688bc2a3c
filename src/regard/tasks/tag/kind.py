"""Tagging as a kind of run: labelled words in, scores of spans or labels and a report out."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar

import torch

from regard.config import Recipe
from regard.errors import SettingsError
from regard.models import build, presets
from regard.models.base import Network, TaggerModel, count_parameters
from regard.run import Run
from regard.tasks.contract import Kind, Log, Tables
from regard.tasks.tag.data import PreparedSentences, TrainingSentences, prepare_sentences, reopen_sentences
from regard.tasks.tag.plan import make_tag_plan
from regard.tasks.tag.report import write_tag_report
from regard.tasks.tag.tagger import load
from regard.tasks.tag.training import LabelScheme, TagTrainUnit
from regard.training.checkpoint import TrainingProgress
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost
from regard.training.plan import COPIES, FLOAT, PROCESS, SHARE_OF_PEAK, Estimate, PlannedSetting

METRICS = ("accuracy", "f1", "loss")
HELD_OUT_SENTENCES = 200
"""Kept in a finished run, to look at."""


class TagTraining(Kind[TrainingSentences, PreparedSentences]):
    """What each word is, or which words together are one thing."""

    defaults: ClassVar[Tables] = {
        "model": {"arch": "bigru-crf"},
        "tokenizer": {"kind": "character", "vocab_size": 256},
        "train": {"metric": "accuracy", "batch_tokens": 1024, "label_smoothing": 0.0},
    }
    unit = "words"

    def check(self, recipe: Recipe) -> None:
        """Architecture, metric, and nothing that is for models that write."""
        if recipe.model.kind != "tagger":
            known = ", ".join(presets("tagger"))
            raise SettingsError(f'model.arch = "{recipe.model.arch}" tags no words; choose from {known}')
        if recipe.train.metric not in METRICS:
            known = ", ".join(METRICS)
            raise SettingsError(f'train.metric = "{recipe.train.metric}" does not measure labels; choose from {known}')
        for name in ("r_drop", "fsdp"):
            if getattr(recipe.train, name):
                raise SettingsError(f"train.{name} is for models that write text; leave it out")
        if recipe.tokenizer.subword_regularization:
            raise SettingsError("tokenizer.subword_regularization is for models that write text; leave it out")

    def read(self, recipe: Recipe) -> TrainingSentences:
        """Read the files."""
        return TrainingSentences(recipe.data, recipe.tag, recipe.train.seed)

    def plan(self, examples: TrainingSentences, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """By the number of sentences, their words and labels."""
        return make_tag_plan(examples.facts, machine, given)

    def estimate(self, recipe: Recipe, examples: TrainingSentences, machine: Machine) -> Estimate:
        """On this machine."""
        data = examples.facts
        with torch.device("meta"):
            model = build(recipe.model, vocabulary=recipe.tokenizer.vocab_size, labels=data.labels)
        words = round(data.total)
        flops = count_cost(model).training(
            piece=round(words * (data.word_length + 2)), word=words, pair=round(data.words) * words
        )
        parameters = count_parameters(model)
        kept = recipe.train.batch_tokens * FLOAT * recipe.model.kept_per_token(data.words)
        memory = PROCESS + COPIES * FLOAT * parameters + kept
        return Estimate(parameters, memory, flops, flops / (SHARE_OF_PEAK * machine.peak))

    def prepare(
        self, run: Run, recipe: Recipe, examples: TrainingSentences, log: Log, base: Run | None
    ) -> PreparedSentences:
        """Vocabulary, labels, pieces and held-out sentences."""
        return prepare_sentences(run, recipe, examples, log, base)

    def reopen(self, run: Run, log: Log) -> PreparedSentences:
        """From the run's own folder."""
        return reopen_sentences(run, log)

    def task(
        self, recipe: Recipe, prepared: PreparedSentences, model: Network, group: ProcessGroup | None = None
    ) -> TagTrainUnit:
        """Batches of sentences."""
        assert isinstance(model, TaggerModel)
        return TagTrainUnit(recipe, prepared, model, group)

    def expected_initial_loss(self, recipe: Recipe, prepared: PreparedSentences) -> float:
        """That of guessing, and some more."""
        return 2.0 + math.log(len(prepared.labels))

    def card(self, recipe: Recipe, prepared: PreparedSentences, base: Run | None) -> dict[str, Any]:
        """Labels and numbers of sentences."""
        counts = prepared.train.label_counts(len(prepared.labels)).tolist()
        labelling = LabelScheme(prepared.labels, recipe.tag)
        before = base.card.get("clitics", ()) if base else ()
        return {
            "task": "tag",
            "vocabulary": prepared.tokenizer.size,
            "sentences": {"train": len(prepared.train), "valid": len(prepared.valid), "test": len(prepared.test)},
            "words": sum(counts),
            "scheme": labelling.scheme,
            "labels": labelling.merged(counts),
            "clitics": list(dict.fromkeys((*before, *prepared.clitics))),
        }

    def finish(self, run: Run, prepared: PreparedSentences, progress: TrainingProgress, log: Log) -> None:
        """Score, report."""
        tagger = load(run.folder)
        parts = {"valid": prepared.valid, "test": prepared.test}
        scores = {part: tagger.score(sentences).as_dict() for part, sentences in parts.items() if sentences}
        learnt = {"parameters": count_parameters(tagger.model), "scores": scores}
        run.write_card(run.card | learnt | {"training": dataclasses.asdict(progress)})
        held_out = prepared.test or prepared.valid
        run.write_held_out([one._asdict() for one in held_out[:HELD_OUT_SENTENCES]])
        write_tag_report(run, tagger, held_out)
        prepared.train.close()
        run.put_store_away()

    def result(self, run: Run) -> list[str]:
        """F1 of spans, or accuracy."""
        scores = []
        for part, found in run.card.get("scores", {}).items():
            size = f"on {found['words']:,} words of {found['sentences']:,} sentence{'s' * (found['sentences'] != 1)}"
            accuracy = f"accuracy {found['accuracy']:.2%}"
            if "span_f1" in found:
                spans = f"span F1 {found['span_f1']:.2%}  precision {found['precision']:.2%}"
                scores.append(f"{part}: {spans}  recall {found['recall']:.2%}  {accuracy}  {size}")
            else:
                scores.append(f"{part}: {accuracy}  macro F1 {found['f1']:.2%}  {size}")
        look = f'look at {run.folder / "report.html"}, or "regard tag {run.folder}"'
        return [*scores, f"the run is in {run.folder}; {look}"]

    def folder(self, recipe: Recipe) -> Path:
        """Named after the file."""
        name = Path(recipe.data.train[0].source).name.partition(".")[0]
        return Path("runs") / (f"{name}-{recipe.model.arch}" if name else recipe.model.arch)
