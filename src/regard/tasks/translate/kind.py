"""Translation as a kind of run: sentence pairs in, tuned search, BLEU and a report out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from regard.config import Recipe
from regard.config.recipe import make_recipe
from regard.errors import SettingsError
from regard.export import exportable
from regard.languages import common_scripts
from regard.models.base import Network, Seq2Seq, count_parameters
from regard.run import Run
from regard.tasks.contract import Kind, Log, Tables, require_writer
from regard.tasks.report import Sample, write_report
from regard.tasks.seq2seq import TranslateTrainUnit
from regard.tasks.translate.data import PreparedPairs, TrainingPairs, open_prepared, prepare
from regard.tasks.translate.evaluate import score_translations
from regard.tasks.translate.plan import PairFacts, estimate, fit_memory, make_plan
from regard.tasks.translate.training import still_tuned, tune_search
from regard.tasks.translate.translator import load, texts_of
from regard.training.checkpoint import TrainingProgress
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.plan import Estimate, PlannedSetting, merge

METRICS = ("bleu", "chrf", "loss")
HELD_OUT_PAIRS = 500
"""Kept in a finished run, to measure by what is made of it later."""


class TranslateTraining(Kind[TrainingPairs, PreparedPairs]):
    """From one language to another."""

    lasting: ClassVar[tuple[str, ...]] = ("task", "source_language", "target_language")

    def check(self, recipe: Recipe) -> None:
        """Translations can be measured by some metrics only."""
        require_writer(recipe)
        if recipe.train.metric not in METRICS:
            known = ", ".join(METRICS)
            raise SettingsError(f'train.metric = "{recipe.train.metric}": of translations there are {known}')

    def read(self, recipe: Recipe) -> TrainingPairs:
        """Count and measure the pairs."""
        return TrainingPairs(recipe.data, recipe.train.seed)

    def plan(self, examples: TrainingPairs, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """By the number of pairs and their lengths."""
        corpus = measure(examples)
        plan = make_plan(corpus, machine, given)
        return fit_memory(plan, make_recipe(merge(plan, given), where=where), corpus, machine)

    def estimate(self, recipe: Recipe, examples: TrainingPairs, machine: Machine) -> Estimate:
        """On this machine."""
        return estimate(recipe, measure(examples), machine)

    def prepare(self, run: Run, recipe: Recipe, examples: TrainingPairs, log: Log, base: Run | None) -> PreparedPairs:
        """Vocabularies, token store and held-out pairs."""
        return prepare(run, recipe, examples, log, base.tokenizers if base else None)

    def reopen(self, run: Run, log: Log) -> PreparedPairs:
        """From the run's own folder."""
        return open_prepared(run, log)

    def task(
        self, recipe: Recipe, prepared: PreparedPairs, model: Network, group: ProcessGroup | None = None
    ) -> TranslateTrainUnit:
        """Batches of pairs."""
        assert isinstance(model, Seq2Seq)
        return TranslateTrainUnit(recipe, prepared, model, group)

    def expected_initial_loss(self, recipe: Recipe, prepared: PreparedPairs) -> float:
        """That of guessing, and some more: before the first step it is worse than that."""
        return 2.0 + math.log(prepared.target.size)

    def card(self, recipe: Recipe, prepared: PreparedPairs, base: Run | None) -> dict[str, Any]:
        """Languages, vocabularies and numbers of pairs."""
        return {
            "languages": {"source": recipe.data.source_language, "target": recipe.data.target_language},
            "vocabulary": {"source": prepared.source.size, "target": prepared.target.size},
            "pairs": {"train": len(prepared.train), "valid": len(prepared.valid), "test": len(prepared.test)},
            "scripts": {"target": sorted(common_scripts(pair.target for pair in prepared.valid))},
            "tuned": still_tuned(recipe.search, base.card) if base else {},
        }

    def finish(self, run: Run, prepared: PreparedPairs, progress: TrainingProgress, log: Log) -> None:
        """Tune the search, translate the held-out pairs."""
        finish(run, prepared, progress, log)

    def result(self, run: Run) -> list[str]:
        """BLEU and chrF."""
        scores = [
            f"{part}: BLEU {found['bleu']:.1f}  chrF {found['chrf']:.1f}  on {found['sentences']:,} sentences"
            for part, found in run.card.get("scores", {}).items()
        ]
        look = f'look at {run.folder / "report.html"}, or "regard translate {run.folder}"'
        return [*scores, f"the run is in {run.folder}; {look}"]

    def notes(self, recipe: Recipe) -> Sequence[str]:
        """Whether it can be exported."""
        reasons = exportable(recipe)
        if all(reasons.values()):
            return (f"note: this run will have no export: {'; '.join(dict.fromkeys(reasons.values()))}",)
        return [f"note: no export to {name}: {reason}" for name, reason in reasons.items() if reason]

    def folder(self, recipe: Recipe) -> Path:
        """E.g. runs/en-de, or runs/ and the architecture."""
        languages = [recipe.data.source_language, recipe.data.target_language]
        return Path("runs") / "-".join(languages) if all(languages) else super().folder(recipe)


def measure(pairs: TrainingPairs) -> PairFacts:
    """What the plan must know of the pairs."""
    return PairFacts(len(pairs), pairs.mean_characters, pairs.long_characters)


def finish(run: Run, prepared: PreparedPairs, progress: TrainingProgress, log: Log) -> None:
    """Tune the search, score the kept weights, fill in the card, write the report, put the training data away."""
    tuned = tune_search(run, prepared.valid, prepared.train.lengths[0], log)
    translator = load(run.folder)
    scores: dict[str, Any] = {}
    samples: list[Sample] = []
    for part, pairs in (("valid", prepared.valid), ("test", prepared.test)):
        if pairs:
            answers = translator.translate([pair.source for pair in pairs])
            scores[part] = score_translations(texts_of(answers), [pair.target for pair in pairs]).as_dict()
            samples = [
                Sample(pair.source, answer.text, pair.target, answer.score)
                for pair, answer in zip(pairs, answers, strict=True)
            ]
    parameters = count_parameters(translator.model)
    learnt = {"parameters": parameters, "scores": scores, "training": dataclasses.asdict(progress)}
    run.write_card(run.card | learnt | {"tuned": tuned})
    write_report(run, translator, samples, prepared.train.lengths)
    run.write_held_out((prepared.test or prepared.valid)[:HELD_OUT_PAIRS])
    prepared.train.close()
    run.put_store_away()
