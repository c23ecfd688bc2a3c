"""Training of masked language models: the plan, batches with hidden tokens, and perplexity of held-out texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.config import Recipe
from regard.data.batches import Index, make_sources
from regard.errors import TrainingError
from regard.models.base import Network
from regard.models.masked_language_model import MaskedLanguageModel
from regard.tasks.bootstrap import ratio_metric
from regard.tasks.dataset import Parts, StreamTrainUnit
from regard.tasks.masked_language_model.filler import BLANK, BlankFiller, FilledText
from regard.tasks.masked_language_model.masking import MaskedBatch, Masking
from regard.tasks.masked_language_model.scores import (
    HiddenWindow,
    MaskedScore,
    hide_some,
    score_windows,
    sum_scores,
)
from regard.tasks.text_scores import windows
from regard.tasks.text_training import TextData, TextTraining, choose_sizes, mean_tokens
from regard.tasks.training import Scored, Tables, Workload
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss, perplexity, smoothed_cross_entropy
from regard.training.plan import (
    PlannedSetting,
    choose_learning_rate,
    choose_length,
    choose_precision,
    leave_given,
    steps_per_epoch,
)
from regard.training.trainer import Validation

VALIDATED = ("loss", "perplexity", "accuracy")
"""The scores of a validation."""
ENOUGH_EPOCHS = 5
"""With `train.max_minutes`, the network is the largest one that reads the texts this many times in that time."""
SHOWN, SHOWN_WORDS = 20, 30
"""Number of texts with a blank in the report, and the largest number of words that are shown of a text."""


class MaskedTrainUnit(StreamTrainUnit):
    """Provides batches of windows (texts, or parts of long texts) with hidden tokens, and validates."""

    data: TextData

    def __init__(self, recipe: Recipe, data: TextData, model: Network, group: ProcessGroup | None = None):
        tokens = data.train.tokens
        super().__init__(recipe, data, model, group, (tokens, np.zeros_like(tokens)), data.train.weights)
        self.masking = Masking(recipe.task, data.tokenizer)
        self.valid = validation_windows(data, recipe)

    def batch(self, position: int) -> MaskedBatch:
        """The batch at `position` of the training stream. Its hidden tokens depend only on the seed and `position`."""
        seed = self.recipe.train.seed % (1 << 64)
        return self._mask(self.stream.at(position), np.random.Generator(np.random.PCG64([seed, position])))

    def join(self, index: Index) -> MaskedBatch:
        return self._mask(index, np.random.Generator(np.random.PCG64(0)))

    def _mask(self, index: Index, chance: np.random.Generator) -> MaskedBatch:
        texts = [self.data.train[int(place)][0][0] for place in index]
        return self.masking.apply(make_sources(texts, self.data.tokenizer.pad), index, chance)

    def loss(self, model: MaskedLanguageModel, batch: MaskedBatch) -> Loss:
        states_ND = model.hidden(batch.source, batch.chosen_BS)
        smoothing = self.recipe.train.label_smoothing if model.training else 0.0
        return smoothed_cross_entropy(model.output, states_ND, batch.target_N, smoothing)

    def flops(self, batch: MaskedBatch) -> float:
        rows, size = batch.chosen_BS.shape
        return self.cost.training(token=rows * size, pair=rows * size**2, predicted=batch.target_tokens)

    def validate(self, model: MaskedLanguageModel) -> Validation:
        """Predict hidden tokens of the validation texts, always the same ones; as samples, fill three blanks."""
        data, recipe = self.data, self.recipe
        mine = score_windows(model, self.group.share(self.valid), data.tokenizer.pad)
        loss, *counts = self.group.sum(
            *(float(sum(getattr(one, name) for one in mine)) for name in MaskedScore._fields)
        )
        found = sum_scores([MaskedScore(loss, *map(round, counts))]).as_dict()
        filler = BlankFiller(model, data.tokenizer, recipe.task, recipe.data.max_length)
        samples = [
            {"source": one.given, "output": one.text, "reference": text}
            for text, one in fill_middle(filler, data.valid[:3])
        ]
        scores = {name: found[name] for name in VALIDATED}
        score = scores["accuracy"] if recipe.train.metric == "accuracy" else -scores["loss"]
        return Validation(scores, score, samples, loss=scores["loss"])


def validation_windows(data: TextData, recipe: Recipe) -> list[HiddenWindow]:
    """The windows of the validation texts, each with about `hidden_share` of its tokens hidden."""
    found = [
        copy
        for ids in data.tokenizer.encode_many(data.valid)
        for window in windows(ids, recipe.data.max_length)
        for copy in hide_some(window, recipe.task.hidden_share)
    ]
    if not found:
        raise TrainingError("no held-out text has a token that is known; give other texts")
    return found


def fill_middle(filler: BlankFiller, texts: Sequence[str]) -> list[tuple[str, FilledText]]:
    """Hide the word in the middle of each text (of a long text, of its beginning), and let the model fill the blank."""
    shown = [" ".join(text.split()[:SHOWN_WORDS]) for text in texts]
    blanked = []
    for text in shown:
        words = text.split()
        words[len(words) // 2] = BLANK
        blanked.append(" ".join(words))
    return list(zip(shown, filler.fill(blanked), strict=True))


class MaskedTraining(TextTraining):
    train_unit = MaskedTrainUnit
    needs_known_token = True
    result = "perplexity {perplexity:.2f} per hidden token, {accuracy:.2%} of {tokens:,} correct  on {texts:,} texts"

    def plan(self, examples: Parts[str], machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        return make_plan(len(examples) * mean_tokens(examples), machine, given)

    def workload(self, recipe: Recipe, examples: Parts[str]) -> Workload:
        """Estimate the amount of computation per epoch, as if all texts were windows of equal length."""
        length = min(mean_tokens(examples), recipe.data.max_length)
        tokens = len(examples) * mean_tokens(examples)
        amounts = {"token": tokens, "pair": tokens * length, "predicted": tokens * recipe.task.hidden_share}
        return Workload(amounts, length, 1, steps_per_epoch(tokens, recipe.train.batch_tokens))

    def score(self, predictor: BlankFiller, examples: Sequence[str]) -> Scored:
        """Predict a share of the tokens of each window; as samples, fill a blank in 20 texts."""
        found = predictor.score(examples, quick=True)
        scores = sum_scores(found).as_dict() | {"texts": len(examples)}
        counts = ((one.negative_log_likelihood, one.tokens) for one in found)
        metric = ratio_metric("perplexity", counts, perplexity, lower_is_better=True)
        return Scored(scores, fill_middle(predictor, examples[:SHOWN]), metric)


def make_plan(tokens: float, machine: Machine, given: Tables) -> list[PlannedSetting]:
    """Choose the settings that the user has not `given`. `tokens`: approximate number of tokens to train on."""
    train = given.get("train", {})
    batch = 2048 if tokens < 5e6 else 4096
    epoch = steps_per_epoch(tokens, train.get("batch_tokens") or batch)
    every = min(max(epoch, 100), 2000)
    muon = train.get("optimizer") != "adam" and not train.get("fsdp")
    reason = "sub-layers add nothing at first: needs fewer steps"
    choices = [
        *choose_sizes(tokens, machine, given, layers="model.encoder_layers", epochs=ENOUGH_EPOCHS),
        *choose_precision(machine),
        *choose_learning_rate(3e-3 if muon else 1e-3, 50, 0.4, muon=muon),
        PlannedSetting("train.batch_tokens", batch, "only the hidden tokens are predicted"),
        *choose_length(epoch, validate_every=every, patience=4, max_steps=max(40 * epoch, 10 * every)),
        PlannedSetting("train.zero_init_residual", True, reason),
    ]
    return leave_given(choices, given)


TRAINING = MaskedTraining()
