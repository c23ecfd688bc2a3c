"""The plan for encoders of questions: sizes and lengths from the data, each choice with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regard.training.plan import PlannedSetting, is_given

EPOCHS = 20  # after which small knowledge bases have long been learnt by heart
UPDATES_AT_LEAST = 50  # between validations


@dataclass(frozen=True)
class KnowledgeFacts:
    """What the plan knows of the training data."""

    texts: int
    """Questions, and answers where they are compared too."""
    words: float
    """Mean number of words of a text, as spaces divide it."""
    names: bool
    """The answers are names, such as `card_arrival`, and not sentences."""

    @property
    def tokens(self) -> float:
        """Of a text: punctuation and divided words count, and so does its end."""
        return 1.5 * self.words + 1


def make_retrieval_plan(data: KnowledgeFacts, given: Mapping[str, Mapping[str, Any]]) -> list[PlannedSetting]:
    """Choose whatever `given`, as tables of settings, leaves open."""
    choices = [*_reading(data), *_model(data), *_learning()]
    batch = given.get("train", {}).get("batch_tokens") or _batch_tokens(data)
    choices += _batches(data, batch)
    return [choice for choice in choices if not is_given(choice.name, given)]


def _reading(data: KnowledgeFacts) -> Iterator[PlannedSetting]:
    if data.names:
        yield PlannedSetting(
            "retrieve.match_answers", False, "the answers are names; questions are compared with questions alone"
        )
    words = data.texts * data.words
    size = int(min(max(15 * math.sqrt(words), 300), 16_000)) // 100 * 100
    yield PlannedSetting(
        "tokenizer.vocab_size", size, f"{data.texts:,} texts: few enough that each subword is seen often"
    )


def _model(data: KnowledgeFacts) -> Iterator[PlannedSetting]:
    yield PlannedSetting("model.width", 128 if data.texts < 2_000 else 256, f"{data.texts:,} texts")
    yield PlannedSetting("model.dropout", 0.3 if data.texts < 100_000 else 0.1, "the less data, the more dropout")


def _learning() -> Iterator[PlannedSetting]:
    yield PlannedSetting("train.learning_rate", 4e-3, "what these networks bear")
    yield PlannedSetting("train.warmup_steps", 50, "a short climb is enough")
    yield PlannedSetting("train.schedule", "constant", "the end is not known yet; the rate falls when it comes")
    yield PlannedSetting(
        "train.cooldown", 0.3, "the last third, whatever ends it: minutes, updates, or no better validation"
    )
    yield PlannedSetting("train.ema_decay", 0.98, "training is short")


def _batch_tokens(data: KnowledgeFacts) -> int:
    """Texts enough that each has some hundred rivals, or a tenth of a small knowledge base."""
    texts = min(256, max(data.texts // 10, 16))
    return max(1 << round(math.log2(texts * data.tokens)), 256)


def _batches(data: KnowledgeFacts, batch: int) -> Iterator[PlannedSetting]:
    yield PlannedSetting(
        "train.batch_tokens", batch, f"each text has about {max(round(batch / data.tokens), 1)} rivals"
    )
    epoch = max(round(data.texts * data.tokens / (0.9 * batch)), 1)
    every = min(max(2 * epoch, UPDATES_AT_LEAST), 1000)
    yield PlannedSetting("train.validate_every", every, f"an epoch is about {epoch:,} updates")
    yield PlannedSetting("train.checkpoint_every", min(every, 500), "so little is lost when it is killed")
    most = max(EPOCHS * epoch, 10 * every)
    yield PlannedSetting("train.max_steps", most, f"{round(most / epoch)} epochs, if nothing ends it before")
    yield PlannedSetting("train.patience", 5, "validations without a better one; then it cools down and stops")
