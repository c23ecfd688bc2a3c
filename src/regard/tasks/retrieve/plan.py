"""The plan for encoders of questions: sizes and lengths from the data, each choice with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from regard.training.plan import (
    PlannedSetting,
    Tables,
    batch_size,
    choose_learning_rate,
    choose_length,
    leave_given,
    steps_per_epoch,
)

EPOCHS = 20  # after which a model of a small knowledge base has long overfitted
LEAST_STEPS = 50  # between validations


@dataclass(frozen=True)
class KnowledgeFacts:
    """What the plan needs to know of the training data."""

    texts: int
    """Number of questions, and of answers if they are compared too."""
    words: float
    """Mean number of words per text, separated by spaces."""
    names: bool
    """The answers are names, such as `card_arrival`, and not sentences."""

    @property
    def tokens(self) -> float:
        """Mean number of tokens per text, with punctuation, split words and EOS."""
        return 1.5 * self.words + 1


def make_retrieval_plan(data: KnowledgeFacts, given: Tables) -> list[PlannedSetting]:
    """Choose the settings that `given` leaves open."""
    batch = given.get("train", {}).get("batch_tokens") or _batch_tokens(data)
    choices = [*_reading(data), *_model(data), *choose_learning_rate(4e-3, 50, 0.3), *_batches(data, batch)]
    return leave_given(choices, given)


def _reading(data: KnowledgeFacts) -> Iterator[PlannedSetting]:
    if data.names:
        reason = "the answers are names: questions are compared with questions only"
        yield PlannedSetting("retrieve.match_answers", False, reason)
    size = int(min(max(15 * math.sqrt(data.texts * data.words), 300), 16_000)) // 100 * 100
    reason = f"{data.texts:,} texts: few enough that each subword is seen often"
    yield PlannedSetting("tokenizer.vocab_size", size, reason)


def _model(data: KnowledgeFacts) -> Iterator[PlannedSetting]:
    yield PlannedSetting("model.width", 128 if data.texts < 2_000 else 256, f"{data.texts:,} texts")
    yield PlannedSetting("model.dropout", 0.3 if data.texts < 100_000 else 0.1, "the less data, the more dropout")
    yield PlannedSetting("train.ema_decay", 0.98, "a short average, because training is short")


def _batch_tokens(data: KnowledgeFacts) -> int:
    """So many texts that each has some hundred negatives, or a tenth of a small knowledge base."""
    return batch_size(min(256, max(data.texts // 10, 16)) * data.tokens, least=256)


def _batches(data: KnowledgeFacts, batch: int) -> Iterator[PlannedSetting]:
    negatives = f"about {max(round(batch / data.tokens), 1)} texts, which are negatives of each other"
    yield PlannedSetting("train.batch_tokens", batch, negatives)
    epoch = steps_per_epoch(data.texts * data.tokens, batch)
    every = min(max(2 * epoch, LEAST_STEPS), 1000)
    yield from choose_length(epoch, validate_every=every, patience=5, max_steps=max(EPOCHS * epoch, 10 * every))
