"""Training of language models: the plan, batches of texts, and perplexity of the held-out texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from regard.config import Recipe
from regard.data.batches import Batch, Index, make_batch
from regard.data.store import open_documents
from regard.models.base import Network, Seq2Seq
from regard.run import Run
from regard.tasks.bootstrap import ratio_metric
from regard.tasks.dataset import (
    HELD_OUT,
    Parts,
    hold_out,
    learn_tokenizer,
    open_store_folder,
    read_held_out,
    read_train,
)
from regard.tasks.language_model.data import TextData, write_store
from regard.tasks.language_model.generator import GeneratedText, TextGenerator
from regard.tasks.language_model.plan import make_plan
from regard.tasks.seq2seq import TeacherForcing, perplexity
from regard.tasks.text_scores import TextScore, sum_scores
from regard.tasks.texts import read_texts
from regard.tasks.training import HELD_OUT_EXAMPLES, Json, Log, Scored, Tables, Training, Workload
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import pair_amounts
from regard.training.plan import CHARACTERS_PER_TOKEN, PlannedSetting, steps_per_epoch
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


def mean_tokens(examples: Parts[str]) -> float:
    """Mean number of tokens per training text, including EOS, estimated from the number of characters."""
    return sum(map(len, examples.train())) / max(len(examples), 1) / CHARACTERS_PER_TOKEN + 1


def continue_texts(generator: TextGenerator, texts: Sequence[str]) -> list[GeneratedText]:
    """For each text, let the model continue its first three words."""
    return generator.write([" ".join(text.split()[:3]) for text in texts])


class LanguageModelTraining(Training[Parts[str], TextData]):
    train_unit = LanguageModelTrainUnit
    result = (
        "perplexity {perplexity:.2f} per token, {word_perplexity:.1f} per word, {character_perplexity:.3f} per"
        " character;  {bits_per_byte:.3f} bits per byte  on {texts:,} texts"
    )

    def read(self, recipe: Recipe) -> Parts[str]:
        found = read_train(recipe.data, read_texts, "a file of texts", "texts")
        return hold_out(recipe.data, found, read_texts, str, "texts", recipe.train.seed)

    def plan(self, examples: Parts[str], machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        return make_plan(len(examples) * mean_tokens(examples), machine, given)

    def workload(self, recipe: Recipe, examples: Parts[str]) -> Workload:
        """Estimate the amount of computation per epoch, as if all texts had mean length."""
        length = mean_tokens(examples)
        amounts = {unit: len(examples) * count for unit, count in pair_amounts(1, 1, round(length)).items()}
        passes = 2 if recipe.train.r_drop else 1
        return Workload(amounts, length, passes, steps_per_epoch(len(examples) * length, recipe.train.batch_tokens))

    def prepare(self, run: Run, recipe: Recipe, examples: Parts[str], log: Log, base: Run | None) -> None:
        learn_tokenizer(run, recipe, examples.train(), log, base)
        write_store(run, examples)

    def open_data(self, run: Run, log: Log) -> TextData:
        folder = open_store_folder(run, lambda: write_store(run, self.read(run.recipe)))
        valid, test = (read_held_out(folder, part, "texts") for part in HELD_OUT)
        return TextData(run.tokenizers[0], open_documents(folder / "train"), valid, test)

    def expected_initial_loss(self, recipe: Recipe, data: TextData) -> float:
        return 2.0 + math.log(data.tokenizer.size)  # a little more than the loss of uniform guessing

    def card(self, recipe: Recipe, data: TextData, base: Run | None) -> Json:
        """Entries of card.json: vocabulary size, number of training windows, numbers of validation and test texts."""
        return {
            "vocabulary": data.tokenizer.size,
            "texts": {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
        }

    def score(self, predictor: TextGenerator, examples: Sequence[str]) -> Scored:
        """Compute perplexity and bits per byte of the texts; as samples, continue the first words of 20 texts."""
        found = predictor.score(examples)
        scores = sum_scores(found).as_dict() | {"texts": len(examples)}
        counts = ((one.negative_log_likelihood, one.tokens) for one in found)
        metric = ratio_metric("perplexity", counts, perplexity, lower_is_better=True)
        return Scored(scores, list(zip(examples, continue_texts(predictor, examples[:20]), strict=False)), metric)

    def from_records(self, records: Sequence[Json]) -> list[str]:
        return [one["text"] for one in records]

    def train_examples(self, examples: Parts[str]) -> Iterable[str]:
        return examples.train()

    def texts(self, example: str) -> tuple[str, ...]:
        return (example,)

    def held_out(self, data: TextData) -> list[Json]:
        return [{"text": text} for text in (data.test or data.valid)[:HELD_OUT_EXAMPLES]]


TRAINING = LanguageModelTraining()
