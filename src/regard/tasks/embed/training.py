"""Training of word vectors: the plan, batches of blocks, and validation on held-out texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from regard.config import Recipe
from regard.data.batches import Index
from regard.data.store import open_documents
from regard.errors import SettingsError
from regard.models.base import Network
from regard.models.skip_gram import SkipGram, negative_sampling_loss
from regard.run import Run
from regard.tasks.dataset import (
    HELD_OUT,
    Parts,
    StreamTrainUnit,
    hold_out,
    learn_tokenizer,
    open_store_folder,
    read_held_out,
    read_train,
)
from regard.tasks.embed.blocks import BLOCK, NOISE, BlockBatch, BlockSampler
from regard.tasks.embed.data import EmbedData, encode_texts, read_counts, write_store
from regard.tasks.embed.plan import make_plan
from regard.tasks.embed.scoring import score_texts
from regard.tasks.embed.vectors import WordVectors
from regard.tasks.texts import read_texts
from regard.tasks.training import HELD_OUT_EXAMPLES, Json, Log, Scored, Tables, Training, Workload
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss
from regard.training.plan import CHARACTERS_PER_TOKEN, PlannedSetting, steps_per_epoch
from regard.training.trainer import Validation

WORD_LENGTH = 1.1 * CHARACTERS_PER_TOKEN
"""Approximate number of characters per word or punctuation mark, with the space."""


class EmbedTrainUnit(StreamTrainUnit):
    data: EmbedData

    def __init__(self, recipe: Recipe, data: EmbedData, model: Network, group: ProcessGroup | None = None):
        tokens = data.train.tokens
        super().__init__(recipe, data, model, group, (np.zeros_like(tokens), tokens), data.train.weights)
        self.sampler = BlockSampler(data.counts, recipe.task, recipe.train.seed, data.tokenizer.pad)
        self.valid = encode_texts(data.valid, data.tokenizer, recipe.data.max_length)

    def batch(self, position: int) -> BlockBatch:
        """The batch at `position` of the training stream; its windows and noise words depend on the position."""
        return self.sampler.sample(*self.data.train.joined(self.stream.at(position)), position)

    def join(self, index: Index) -> BlockBatch:
        return self.sampler.sample(*self.data.train.joined(index), 0)

    def loss(self, model: SkipGram, batch: BlockBatch) -> Loss:
        found = negative_sampling_loss(model(batch), batch.window_RQC, batch.noise_weight_RQ)
        return Loss(found, found.detach(), batch.target_tokens)

    def flops(self, batch: BlockBatch) -> float:
        return self.cost.training(score=batch.window_RQC.numel() + batch.noise_weight_RQ.numel() * NOISE)

    def validate(self, model: SkipGram) -> Validation:
        """Score the held-out texts: the loss per pair, and how often a true context has a higher score than noise."""
        mine = score_texts(model, self.valid, self.sampler, self.group.rank, self.group.size)
        found = type(mine)(*self.group.sum(*mine)).as_dict()
        scores = {name: found[name] for name in ("pair_accuracy", "loss")}
        score = -scores["loss"] if self.recipe.train.metric == "loss" else scores["pair_accuracy"]
        return Validation(scores, score, loss=scores["loss"])


class EmbedTraining(Training[Parts[str], EmbedData]):
    train_unit = EmbedTrainUnit
    result = "{pair_accuracy:.2%} of neighbours score above noise words, loss {loss:.3f} per pair, {pairs:,} pairs"

    def check(self, recipe: Recipe) -> None:
        for name, value, needed in (
            ("tokenizer.kind", recipe.tokenizer.kind, "word"),
            ("train.optimizer", recipe.train.optimizer, "adagrad"),
        ):
            if value != needed:
                raise SettingsError(
                    f'{name} = "{value}" is not for word vectors; set it to "{needed}", or leave it out'
                )

    def read(self, recipe: Recipe) -> Parts[str]:
        found = read_train(recipe.data, read_texts, "a file of texts", "texts")
        return hold_out(recipe.data, found, read_texts, str, "texts", recipe.train.seed)

    def plan(self, examples: Parts[str], machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        return make_plan(examples, given)

    def workload(self, recipe: Recipe, examples: Parts[str]) -> Workload:
        """Estimate the amount of computation per epoch, as if no word were left out at random."""
        words = sum(map(len, examples.train())) / WORD_LENGTH
        scores = BLOCK + 2 * recipe.task.window + NOISE
        return Workload({"score": words * scores}, 1.0, 1, steps_per_epoch(words, recipe.train.batch_tokens))

    def prepare(self, run: Run, recipe: Recipe, examples: Parts[str], log: Log, base: Run | None) -> None:
        learn_tokenizer(run, recipe, examples.train(), log, base, "words")
        write_store(run, examples)

    def open_data(self, run: Run, log: Log) -> EmbedData:
        folder = open_store_folder(run, lambda: write_store(run, self.read(run.recipe)))
        valid, test = (read_held_out(folder, part, "texts") for part in HELD_OUT)
        return EmbedData(run.tokenizers[0], open_documents(folder / "train"), valid, test, read_counts(run))

    def expected_initial_loss(self, recipe: Recipe, data: EmbedData) -> float:
        return (1 + recipe.task.negatives) * math.log(2)  # all scores are 0 before training

    def card(self, recipe: Recipe, data: EmbedData, base: Run | None) -> Json:
        """Entries of card.json: vocabulary size, number of words in the training texts, numbers of texts."""
        return {
            "vocabulary": data.tokenizer.size,
            "words": int(data.counts.sum()),
            "texts": {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
        }

    def score(self, predictor: WordVectors, examples: Sequence[str]) -> Scored:
        return Scored(predictor.score(examples))

    def train_examples(self, examples: Parts[str]) -> Iterable[str]:
        return examples.train()

    def texts(self, example: str) -> tuple[str, ...]:
        return (example,)

    def held_out(self, data: EmbedData) -> list[Json]:
        return [{"text": text} for text in (data.test or data.valid)[:HELD_OUT_EXAMPLES]]


TRAINING = EmbedTraining()
