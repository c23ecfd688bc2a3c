"""Training of language models: the plan, batches of texts, and perplexity of the held-out texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.config import Recipe
from regard.data.batches import Batch, Index, make_batch
from regard.models.base import Network, Seq2Seq
from regard.tasks.bootstrap import ratio_metric
from regard.tasks.dataset import Parts
from regard.tasks.language_model.generator import GeneratedText, TextGenerator
from regard.tasks.language_model.plan import make_plan
from regard.tasks.seq2seq import TeacherForcing
from regard.tasks.text_scores import TextScore, sum_scores
from regard.tasks.text_training import TextData, TextTraining, mean_tokens
from regard.tasks.training import Scored, Tables, Workload
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import pair_amounts
from regard.training.loss import perplexity
from regard.training.plan import PlannedSetting, steps_per_epoch
from regard.training.trainer import Validation

VALIDATED = ("loss", "perplexity", "word_perplexity", "character_perplexity", "bits_per_byte")
"""The scores of a validation."""


class LanguageModelTrainUnit(TeacherForcing):
    """Provides batches of windows (texts, or parts of long texts), and validates by perplexity."""

    data: TextData

    def __init__(self, recipe: Recipe, data: TextData, model: Network, group: ProcessGroup | None = None):
        tokens = data.train.tokens
        super().__init__(recipe, data, model, group, (np.zeros_like(tokens), tokens), data.train.weights)

    def validate(self, model: Seq2Seq) -> Validation:
        """Compute the perplexities of the validation texts; as samples, continue the first words of three texts."""
        recipe, data = self.recipe, self.data
        generator = TextGenerator(model, data.tokenizer, recipe.search, recipe.data.max_length)
        mine = generator.score(self.group.share(data.valid))
        sums = [float(sum(getattr(one, name) for one in mine)) for name in TextScore._fields]
        loss, *counts = self.group.sum(*sums)
        found = TextScore(loss, *map(round, counts)).as_dict()
        scores = {name: found[name] for name in VALIDATED}
        samples = [
            {"source": one.beginning, "output": one.text, "reference": text}
            for text, one in zip(data.valid, continue_texts(generator, data.valid[:3]), strict=False)
        ]
        return Validation(scores, -scores["loss"], samples, loss=scores["loss"])

    def join(self, index: Index) -> Batch:
        """Make a batch from the training windows with these indices. The windows are the targets; sources are empty."""
        pad = self.data.tokenizer.pad
        return make_batch([([], self.data.train[int(place)][0][0]) for place in index], pad, pad, index)


def continue_texts(generator: TextGenerator, texts: Sequence[str]) -> list[GeneratedText]:
    """For each text, let the model continue its first three words."""
    return generator.write([" ".join(text.split()[:3]) for text in texts])


class LanguageModelTraining(TextTraining):
    train_unit = LanguageModelTrainUnit
    result = (
        "perplexity {perplexity:.2f} per token, {word_perplexity:.1f} per word, {character_perplexity:.3f} per"
        " character;  {bits_per_byte:.3f} bits per byte  on {texts:,} texts"
    )

    def plan(self, examples: Parts[str], machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        return make_plan(len(examples) * mean_tokens(examples), machine, given)

    def workload(self, recipe: Recipe, examples: Parts[str]) -> Workload:
        """Estimate the amount of computation per epoch, as if all texts had mean length."""
        length = mean_tokens(examples)
        amounts = {unit: len(examples) * count for unit, count in pair_amounts(1, 1, round(length)).items()}
        passes = 2 if recipe.train.r_drop else 1
        return Workload(amounts, length, passes, steps_per_epoch(len(examples) * length, recipe.train.batch_tokens))

    def score(self, predictor: TextGenerator, examples: Sequence[str]) -> Scored:
        """Compute perplexity and bits per byte of the texts; as samples, continue the first words of 20 texts."""
        found = predictor.score(examples)
        scores = sum_scores(found).as_dict() | {"texts": len(examples)}
        counts = ((one.negative_log_likelihood, one.tokens) for one in found)
        metric = ratio_metric("perplexity", counts, perplexity, lower_is_better=True)
        return Scored(scores, list(zip(examples, continue_texts(predictor, examples[:20]), strict=False)), metric)


TRAINING = LanguageModelTraining()
