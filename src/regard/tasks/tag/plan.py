"""The plan for taggers: sizes and lengths from the data, each choice with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regard.training.device import Machine
from regard.training.plan import PlannedSetting, is_given

SPECIAL = 5  # tokens that every vocabulary has, and the space
MOST_CHARACTERS = 8000
LARGEST_TABLE = 1 << 17
UPDATES_AT_LEAST = 40  # between validations
EPOCHS = 10  # more gain little
UPDATES = 600  # that little data gets


@dataclass(frozen=True)
class SentenceFacts:
    """What the plan knows of the training data."""

    sentences: int
    words: float
    """Mean number of words of a sentence."""
    distinct: int
    """Different words."""
    word_length: float
    """Mean number of characters of a word."""
    characters: int
    """Different characters that are seen at least three times."""
    labels: int
    scheme: str
    """How labels mark spans, such as chunks or names; "plain": they do not, as parts of speech."""

    @property
    def marks_spans(self) -> bool:
        """Whether labels mark spans."""
        return self.scheme != "plain"

    @property
    def total(self) -> float:
        """Words of an epoch."""
        return self.sentences * self.words


def make_tag_plan(
    data: SentenceFacts, machine: Machine, given: Mapping[str, Mapping[str, Any]]
) -> list[PlannedSetting]:
    """Choose whatever `given`, as tables of settings, leaves open."""
    arch = given.get("model", {}).get("arch", "tagger-gru")
    batch = given.get("train", {}).get("batch_tokens") or _batch_tokens(data)
    choices = [*_vocabulary(data), *_model(data, arch), *_learning(data, arch), *_batches(data, batch)]
    return [choice for choice in choices if not is_given(choice.name, given)]


def _vocabulary(data: SentenceFacts) -> Iterator[PlannedSetting]:
    if data.scheme == "BIOES":
        yield PlannedSetting("tag.scheme", "BIOES", "answers are written as the training data is")
    size = min(max(data.characters, 4) + SPECIAL, MOST_CHARACTERS)
    yield PlannedSetting("tokenizer.kind", "character", "the spelling tells most of words that were never seen")
    yield PlannedSetting("tokenizer.vocab_size", size, "every character that is seen at least three times")


def _model(data: SentenceFacts, arch: str) -> Iterator[PlannedSetting]:
    yield PlannedSetting("model.arch", arch, "words are read from both ends; a chain joins their labels")
    table = min(1 << max(math.ceil(math.log2(data.distinct)), 8), LARGEST_TABLE)
    yield PlannedSetting("model.words", table, f"{data.distinct:,} different words, each found by two places")
    small = data.total < 50_000
    if arch == "tagger-gru":
        yield PlannedSetting("model.width", 64 if small else 128, f"{data.total:,.0f} words")
    yield PlannedSetting("model.embedding", 50 if small else 100, "of whole words, as wide as their number bears")


def _learning(data: SentenceFacts, arch: str) -> Iterator[PlannedSetting]:
    metric = "f1" if data.marks_spans else "accuracy"
    yield PlannedSetting(
        "train.metric", metric, "of spans" if data.marks_spans else "the share of words that are right"
    )
    if arch == "tagger-encoder":
        yield PlannedSetting("train.optimizer", "muon", "about half the updates that Adam needs")
        yield PlannedSetting("train.muon_learning_rate", 0.02, "of Muon's matrices")
    yield PlannedSetting("train.learning_rate", 3e-3, "what these networks bear")
    yield PlannedSetting("train.warmup_steps", 100, "a short climb is enough")
    yield PlannedSetting("train.schedule", "constant", "the end is not known yet; the rate falls when it comes")
    yield PlannedSetting("train.cooldown", 0.4, "whatever ends it: minutes, updates, or no better validation")


def _batch_tokens(data: SentenceFacts) -> int:
    """Some thirty sentences, or as many updates an epoch as little data needs."""
    wanted = (32 if data.sentences >= 2_000 else 12) * (data.words + 1)
    return int(max(2 ** round(math.log2(wanted)), 128))


def _batches(data: SentenceFacts, batch: int) -> Iterator[PlannedSetting]:
    yield PlannedSetting("train.batch_tokens", batch, f"about {max(round(batch / (data.words + 1)), 1)} sentences")
    epoch = max(round(data.sentences * (data.words + 1) / (0.95 * batch)), 1)
    every = min(max(epoch, UPDATES_AT_LEAST), 1000)
    often = "about once an epoch" if every == epoch else f"an epoch is about {epoch:,} updates"
    yield PlannedSetting("train.validate_every", every, often)
    yield PlannedSetting("train.checkpoint_every", min(every, 500), "so little is lost when it is killed")
    most = max(EPOCHS * epoch, UPDATES)
    yield PlannedSetting("train.max_steps", most, f"{round(most / epoch)} epochs, if nothing ends it before")
    yield PlannedSetting("train.patience", 4, "validations without a better one; then it cools down and stops")
