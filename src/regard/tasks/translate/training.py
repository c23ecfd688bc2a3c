"""Training of translators: validation by BLEU, tuning of the search, scores of the held-out parts.

After training, two search settings are tuned on the validation part, unless the user has set them: the length penalty,
because models trained on little data write short translations; and the maximum length of sentences that are translated
together, which depends on whether the training data has lines with several sentences.

Tuned values are stored in the recipe. card.json lists them, so that further training tunes them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from regard.config import Recipe, SearchSettings
from regard.config.recipe import make_recipe
from regard.data.pairs import Pair
from regard.data.store import open_store
from regard.errors import SettingsError
from regard.languages import common_scripts
from regard.models.base import Network, Seq2Seq
from regard.run import Run
from regard.tasks.dataset import open_store_folder, read_held_out
from regard.tasks.generation import check_recipe
from regard.tasks.reward_plan import data_of, plan_reward, wants_reward, without_objective
from regard.tasks.rewards import find_reward, objective_of
from regard.tasks.seq2seq import PairData, Seq2SeqTrainUnit
from regard.tasks.start_from import copied_tokenizers
from regard.tasks.text_metrics import bleu_metric
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.tasks.translate.data import PairExamples, prepare, write_dictionary, write_store
from regard.tasks.translate.evaluate import quick_scores, score_translations
from regard.tasks.translate.plan import fit_memory, make_plan
from regard.tasks.translate.translation import Translation, texts_of
from regard.tasks.translate.translator import Translator, load
from regard.text.words import split_sentences
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import pair_amounts
from regard.training.plan import PlannedSetting, merge
from regard.training.trainer import Validation

PENALTIES = tuple(tenths / 10 for tenths in range(4, 27, 2))
ENOUGH_PAIRS, MOST_PAIRS = 100, 1000
"""Minimum and maximum number of pairs on which length penalties are compared."""


class Sample(NamedTuple):
    """A held-out source sentence, its translation by the model with the search score, and the reference translation."""

    source: str
    output: str
    reference: str
    score: float


class TranslateTrainUnit(Seq2SeqTrainUnit):
    """Trains a model on sentence pairs; validates by the loss, and by BLEU and chrF of greedy translations."""

    def __init__(self, recipe: Recipe, data: PairData, model: Network, group: ProcessGroup | None = None):
        super().__init__(recipe, data, model, group)
        self.shown = data.valid[: recipe.train.validation_sentences or len(data.valid)]

    def validate(self, model: Seq2Seq) -> Validation:
        """Compute the loss on all validation pairs, and BLEU and chrF of greedy translations.

        Only the first `train.validation_sentences` pairs are translated (0: all).
        """
        loss, texts = self.valid_loss(model), self.generate(model)
        return self.validation({"loss": loss} | quick_scores(texts, [pair.target for pair in self.shown]), texts)

    def validation(self, scores: dict[str, float], texts: Sequence[str]) -> Validation:
        """Return a `Validation` with `scores`, the score that selects the best weights, and three samples of `texts`.

        The selecting score is that of `train.metric`, or the negative loss for "loss". `texts` are the translations by
        `generate`.
        """
        samples = [
            {"source": self.readable(pair.source), "output": text, "reference": pair.target}
            for pair, text in zip(self.shown[:3], texts[:3], strict=True)
        ]
        if self.reward:
            scores = scores | {"reward": self.reward.mean(texts, [pair.target for pair in self.shown])}
        metric = self.recipe.train.metric
        score = -scores["loss"] if metric == "loss" else scores[metric]
        return Validation(scores, score, samples, loss=scores["loss"])

    def readable(self, source: str) -> str:
        """Return a source text in the form in which samples show it: here unchanged; subclasses may override this."""
        return source

    def generate(self, model: Seq2Seq) -> list[str]:
        """Return greedy translations of the first `train.validation_sentences` validation sources (0: all)."""
        search = self.recipe.search
        translator = Translator(model, self.data.source, self.data.target, search)
        found = translator.translate(
            [pair.source for pair in self.group.share(self.shown)],
            sample=False,
            beam_size=1,
            beam_groups=1,
            coverage_penalty=0.0,  # needs a beam
            retry_failures=False,  # a model that has learned little may repeat itself
            max_joined_tokens=search.max_joined_tokens or search.max_source_tokens,  # whole lines, as in training
        )
        return self.group.join(texts_of(found))


class TranslateTraining(Training[PairExamples, PairData]):
    train_unit = TranslateTrainUnit
    result = "BLEU {bleu:.1f}  chrF {chrf:.1f}  on {sentences:,} sentences"
    has_dictionary: ClassVar[bool] = True
    """Whether runs with a word vocabulary get a dictionary; only translations are aligned word by word."""

    def check(self, recipe: Recipe) -> None:
        """Raise an error if vocabularies, search settings or the objective do not fit the rest of the recipe."""
        check_recipe(recipe)
        if recipe.model.needs_joint_vocabulary and not recipe.tokenizer.joint:
            raise SettingsError(
                'model.tie_embeddings = "all" needs one vocabulary for source and target: set tokenizer.joint = true, '
                "or another value of model.tie_embeddings"
            )
        objective = objective_of(recipe)
        if recipe.train.metric == "reward" and not objective.by_reward:
            raise SettingsError(
                f'train.metric = "reward" needs {recipe.data.task}.objective = "reward"; choose another metric'
            )
        if objective.by_reward:
            if recipe.train.fsdp:
                raise SettingsError("train.fsdp cannot be combined with reward fine-tuning; set it to false")
            find_reward(objective)

    def inherited(self, base: Run, given: Tables) -> dict[str, Any]:
        table = without_objective(super().inherited(base, given), base.recipe.data.task)
        if wants_reward(base, given) and "train" not in given.get("data", {}):
            table["data"] |= data_of(base, given)
        return table

    def finetuning(self, base: Run, given: Tables) -> list[PlannedSetting]:
        return list(plan_reward(base, given)) if wants_reward(base, given) else super().finetuning(base, given)

    def read(self, recipe: Recipe) -> PairExamples:
        return PairExamples(recipe.data, recipe.train.seed)

    def plan(self, examples: PairExamples, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        corpus = examples.facts()
        plan = make_plan(corpus, machine, given)
        recipe = make_recipe(merge(plan, given), where=where)
        return fit_memory(plan, recipe, corpus.tokenized(recipe.tokenizer.kind), machine)

    def sizes(self, recipe: Recipe, examples: PairExamples) -> dict[str, int]:
        return {"source_vocabulary": recipe.tokenizer.vocab_size, "target_vocabulary": recipe.tokenizer.vocab_size}

    def workload(self, recipe: Recipe, examples: PairExamples) -> Workload:
        corpus = examples.facts().tokenized(recipe.tokenizer.kind)
        length = round(corpus.length)
        amounts = {unit: corpus.pairs * count for unit, count in pair_amounts(1, length, length).items()}
        passes = 2 if recipe.train.r_drop else 1
        return Workload(amounts, corpus.length, passes, corpus.steps(recipe.train.batch_tokens))

    def prepare(self, run: Run, recipe: Recipe, examples: PairExamples, log: Log, base: Run | None) -> None:
        prepare(run, recipe, examples, log, base.tokenizers if base else copied_tokenizers(recipe))
        source, target = run.tokenizers
        run.write_sizes(source_vocabulary=source.size, target_vocabulary=target.size)
        if self.has_dictionary and target.kind == "word" and recipe.model.attends:
            write_dictionary(run, examples, log, base.dictionary if base else {})

    def open_data(self, run: Run, log: Log) -> PairData:
        folder = open_store_folder(
            run, lambda: write_store(run, run.recipe, self.read(run.recipe), run.tokenizers, log)
        )
        valid, test = ([Pair(*pair) for pair in read_held_out(folder, part, "pairs")] for part in ("valid", "test"))
        return PairData(*run.tokenizers, open_store(folder / "train"), valid, test)

    def expected_initial_loss(self, recipe: Recipe, data: PairData) -> float:
        """Return the approximate loss per token of an untrained model: log V (uniform guessing) plus 2."""
        return 2.0 + math.log(data.target.size)

    def card(self, recipe: Recipe, data: PairData, base: Run | None) -> dict[str, Any]:
        return {
            "languages": {"source": recipe.data.source_language, "target": recipe.data.target_language},
            "vocabulary": {"source": data.source.size, "target": data.target.size},
            "pairs": {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
            "scripts": {"target": sorted(common_scripts(pair.target for pair in data.valid))},
            "tuned": still_tuned(recipe.search, base.card) if base else {},
        }

    def tune(self, run: Run, data: PairData, log: Log) -> Json:
        return tune_search(run, data.valid, data.train.lengths[0], log)

    def score(self, predictor: Any, examples: Sequence[Pair]) -> Scored:
        found: list[Translation] = predictor.translate([pair.source for pair in examples])
        samples = [
            Sample(pair.source, translation.text, pair.target, translation.score)
            for pair, translation in zip(examples, found, strict=True)
        ]
        texts, references = texts_of(found), [pair.target for pair in examples]
        metric = bleu_metric(texts, [(reference,) for reference in references])
        return Scored(score_translations(texts, references), samples, metric)

    def from_records(self, records: Sequence[Json]) -> list[Pair]:
        return [Pair(one["source"], one["target"]) for one in records]

    def train_examples(self, examples: PairExamples) -> Iterable[Pair]:
        return examples.train()

    def texts(self, example: Pair) -> tuple[str, ...]:
        return tuple(example)

    def held_out(self, data: PairData) -> list[Pair]:
        return (data.test or data.valid)[:500]

    def notes(self, recipe: Recipe) -> Sequence[str]:
        from regard.export import exportable

        reasons = exportable(recipe)
        possible = ", ".join(name for name, reason in reasons.items() if not reason)
        others = [f"{name} ({reason})" for name, reason in reasons.items() if reason]
        return [f"note: can be exported to {possible}; not to {', '.join(others)}"] if others else []

    def folder(self, recipe: Recipe) -> Path:
        """Return the default run folder: runs/SOURCE-TARGET, e.g. runs/en-de, or runs/ARCH if a language is not set."""
        languages = [recipe.data.source_language, recipe.data.target_language]
        return Path("runs") / ("-".join(languages) if all(languages) else recipe.model.arch)


# Search settings that are tuned after training


def tune_search(run: Run, valid: Sequence[Pair], lengths: np.ndarray, log: Log) -> Json:
    """Tune `search.max_joined_tokens` and `search.length_penalty` on the validation pairs `valid`.

    A setting that the user has set is not tuned. Tuned values are written into the recipe and returned by name, for
    card.json. `lengths` are the lengths of the training sources in tokens.
    """
    found: Json = {}
    defaults = SearchSettings()
    tuned_before = [name.removeprefix("search.") for name in run.card.get("tuned", ()) if name.startswith("search.")]
    search = usual = replace(run.recipe.search, **{name: getattr(defaults, name) for name in tuned_before})
    if usual.max_joined_tokens == defaults.max_joined_tokens:
        found["search.max_joined_tokens"] = longest_join(valid, lengths)
        search = replace(search, max_joined_tokens=found["search.max_joined_tokens"])
    if usual.length_penalty == defaults.length_penalty and (best := tune_penalty(load(run.folder), valid)):
        found |= best
        search = replace(search, length_penalty=best["search.length_penalty"])
        if search.length_penalty != usual.length_penalty:
            change = f"BLEU {best['bleu']:.1f} instead of {best['bleu_before']:.1f}"
            log(f"length penalty {search.length_penalty:g}, tuned on the validation part: {change}")
    if search != run.recipe.search:
        run.write_recipe(replace(run.recipe, search=search))
    return found


def longest_join(valid: Sequence[Pair], lengths: np.ndarray) -> int:
    """Choose `search.max_joined_tokens`, the maximum length of consecutive sentences that are translated as one input.

    If at least 1 % of the sources in `valid` have several sentences, it is the 99th percentile of `lengths` (tokens per
    training source). Otherwise it is 1: each sentence is translated alone, because a model that has rarely seen two
    sentences on a line may leave one out.
    """
    several = sum(len(split_sentences(pair.source)) > 1 for pair in valid)
    return int(np.quantile(lengths, 0.99)) if several >= 0.01 * len(valid) else 1


def still_tuned(search: SearchSettings, card: Mapping[str, Any]) -> Json:
    """Return the search settings that `card` (card.json) lists as tuned and that have the same values in `search`."""
    return {
        name: value
        for name, value in card.get("tuned", {}).items()
        if name.startswith("search.") and getattr(search, name.removeprefix("search.")) == value
    }


def tune_penalty(translator: Translator, pairs: Sequence[Pair]) -> dict[str, float]:
    """Find the length penalty with the best BLEU; return it, its BLEU, and the BLEU of the default penalty.

    The keys are "search.length_penalty", "bleu" and "bleu_before". One beam search finds the hypotheses; each penalty
    only ranks them again. A gain below 0.1 BLEU keeps the default penalty. The result is empty if there are fewer than
    `ENOUGH_PAIRS` pairs, or if the search settings are not beam search with the "plain" form of the length penalty.
    """
    from sacrebleu import BLEU

    search = translator.search
    by_plain_beam = search.beam_size > 1 and not search.sample and search.length_penalty_form == "plain"
    if not by_plain_beam or len(pairs) < ENOUGH_PAIRS:
        return {}
    pairs, usual = pairs[:MOST_PAIRS], SearchSettings().length_penalty
    answers = translator.translate(
        [pair.source for pair in pairs],
        nbest=search.beam_size,
        retry_failures=False,
        length_penalty=usual,
        # Texts joined from pieces have no alternatives.
        max_joined_tokens=search.max_joined_tokens or search.max_source_tokens,
    )
    references = [[pair.target for pair in pairs]]
    bleu = {
        penalty: BLEU().corpus_score([choose(answer, penalty) for answer in answers], references).score
        for penalty in PENALTIES
    }
    best = max(bleu, key=lambda penalty: (bleu[penalty], -abs(penalty - usual)))
    if bleu[best] < bleu[usual] + 0.1:  # a smaller gain is probably noise
        best = usual
    return {"search.length_penalty": best, "bleu": bleu[best], "bleu_before": bleu[usual]}


def choose(answer: Translation, penalty: float) -> str:
    """Return the text of the hypothesis in `answer` (the best or an alternative) that ranks first with `penalty`.

    Hypotheses are ranked by log-probability / length ** penalty; the length includes the end token.
    """
    ended = [one for one in (answer, *answer.alternatives) if one.log_probs]
    return max(ended, key=lambda one: sum(one.log_probs) / len(one.log_probs) ** penalty).text if ended else answer.text


TRAINING = TranslateTraining()
