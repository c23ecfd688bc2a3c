"""Translation as a kind of run: sentence pairs in, tuned search, BLEU and a report out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.config import Recipe
from regard.config.recipe import make_recipe
from regard.data.pairs import Pair
from regard.errors import SettingsError
from regard.export import exportable
from regard.languages import common_scripts
from regard.models.base import Network, Seq2Seq
from regard.run import Run
from regard.tasks.seq2seq import TranslateTrainUnit
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.tasks.translate.data import PreparedPairs, TrainingPairs, open_prepared, prepare
from regard.tasks.translate.evaluate import score_translations
from regard.tasks.translate.plan import PairFacts, fit_memory, make_plan
from regard.tasks.translate.report import Sample
from regard.tasks.translate.training import still_tuned, tune_search
from regard.tasks.translate.translator import Translator, texts_of
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import pair_amounts
from regard.training.plan import PlannedSetting, merge

HELD_OUT_PAIRS = 500
"""Kept in a finished run, to measure by what is made of it later."""


class TranslateTraining(Training[TrainingPairs, PreparedPairs]):
    """From one language to another."""

    def check(self, recipe: Recipe) -> None:
        """Embeddings of both sides can be one matrix only if the vocabulary is one."""
        if recipe.model.needs_joint_vocabulary and not recipe.tokenizer.joint:
            raise SettingsError(
                'model.tie_embeddings = "all" needs one vocabulary: set tokenizer.joint = true, or model.tie_embeddings'
            )

    def read(self, recipe: Recipe) -> TrainingPairs:
        """Count and measure the pairs."""
        return TrainingPairs(recipe.data, recipe.train.seed)

    def plan(self, examples: TrainingPairs, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """By the number of pairs and their lengths."""
        corpus = measure(examples)
        plan = make_plan(corpus, machine, given)
        return fit_memory(plan, make_recipe(merge(plan, given), where=where), corpus, machine)

    def sizes(self, recipe: Recipe, examples: TrainingPairs) -> dict[str, int]:
        """Both vocabularies have the size that the settings ask for."""
        return {"source_vocabulary": recipe.tokenizer.vocab_size, "target_vocabulary": recipe.tokenizer.vocab_size}

    def workload(self, recipe: Recipe, examples: TrainingPairs) -> Workload:
        """Pairs of mean length."""
        corpus = measure(examples)
        length = round(corpus.length)
        amounts = {unit: corpus.pairs * count for unit, count in pair_amounts(1, length, length).items()}
        passes = 2 if recipe.train.r_drop else 1
        return Workload(amounts, corpus.length, passes, corpus.steps(recipe.train.batch_tokens))

    def prepare(self, run: Run, recipe: Recipe, examples: TrainingPairs, log: Log, base: Run | None) -> None:
        """Vocabularies, token store and held-out pairs."""
        made = prepare(run, recipe, examples, log, base.tokenizers if base else None)
        run.write_sizes(source_vocabulary=made.source.size, target_vocabulary=made.target.size)
        made.train.close()

    def open_data(self, run: Run, log: Log) -> PreparedPairs:
        """From the run's own folder."""
        return open_prepared(run, log)

    def train_unit(
        self, recipe: Recipe, data: PreparedPairs, model: Network, group: ProcessGroup | None = None
    ) -> TranslateTrainUnit:
        """Batches of pairs."""
        assert isinstance(model, Seq2Seq)
        return TranslateTrainUnit(recipe, data, model, group)

    def expected_initial_loss(self, recipe: Recipe, data: PreparedPairs) -> float:
        """That of guessing, and some more: before the first step it is worse than that."""
        return 2.0 + math.log(data.target.size)

    def card(self, recipe: Recipe, data: PreparedPairs, base: Run | None) -> dict[str, Any]:
        """Languages, vocabularies and numbers of pairs."""
        return {
            "languages": {"source": recipe.data.source_language, "target": recipe.data.target_language},
            "vocabulary": {"source": data.source.size, "target": data.target.size},
            "pairs": {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
            "scripts": {"target": sorted(common_scripts(pair.target for pair in data.valid))},
            "tuned": still_tuned(recipe.search, base.card) if base else {},
        }

    def tune(self, run: Run, data: PreparedPairs, log: Log) -> Json:
        """Length penalty and joining of sentences."""
        return tune_search(run, data.valid, data.train.lengths[0], log)

    def score(self, predictor: Any, examples: Sequence[Pair]) -> Scored:
        """BLEU, chrF and TER of translations."""
        translator: Translator = predictor
        answers = translator.translate([pair.source for pair in examples])
        samples = [
            Sample(pair.source, answer.text, pair.target, answer.score)
            for pair, answer in zip(examples, answers, strict=True)
        ]
        return Scored(score_translations(texts_of(answers), [pair.target for pair in examples]).as_dict(), samples)

    def held_out(self, data: PreparedPairs) -> list[Pair]:
        """Of the test part, if there is one."""
        return (data.test or data.valid)[:HELD_OUT_PAIRS]

    def result_line(self, part: str, scores: Json) -> str:
        """BLEU and chrF."""
        return f"BLEU {scores['bleu']:.1f}  chrF {scores['chrf']:.1f}  on {scores['sentences']:,} sentences"

    def complete(self, run: Run, data: PreparedPairs) -> None:
        """Close the store."""
        data.train.close()

    def notes(self, recipe: Recipe) -> Sequence[str]:
        """Whether it can be exported."""
        reasons = exportable(recipe)
        if all(reasons.values()):
            return (f"note: this run will have no export: {'; '.join(dict.fromkeys(reasons.values()))}",)
        return [f"note: no export to {name}: {reason}" for name, reason in reasons.items() if reason]

    def folder(self, recipe: Recipe) -> Path:
        """E.g. runs/en-de, or runs/ and the architecture."""
        languages = [recipe.data.source_language, recipe.data.target_language]
        return Path("runs") / ("-".join(languages) if all(languages) else recipe.model.arch)


def measure(pairs: TrainingPairs) -> PairFacts:
    """What the plan must know of the pairs."""
    return PairFacts(len(pairs), pairs.mean_characters, pairs.long_characters)


TRAINING = TranslateTraining()
