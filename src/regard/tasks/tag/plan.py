"""The plan for taggers: sizes and lengths from the data, each choice with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from regard.training.device import Machine
from regard.training.plan import (
    PlannedSetting,
    Tables,
    batch_size,
    choose_learning_rate,
    choose_length,
    leave_given,
    steps_per_epoch,
)

SPECIAL = 5  # tokens that every vocabulary has, and the space
MOST_CHARACTERS = 8000
LARGEST_TABLE = 1 << 17
STEPS_BETWEEN_VALIDATIONS = 40  # at least
EPOCHS = 10  # more gain little
LEAST_STEPS = 600  # with little data


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


def make_tag_plan(data: SentenceFacts, machine: Machine, given: Tables) -> list[PlannedSetting]:
    """Choose the settings that `given` leaves open."""
    arch = given.get("model", {}).get("arch", "bigru-crf")
    batch = given.get("train", {}).get("batch_tokens") or _batch_tokens(data)
    return leave_given([*_vocabulary(data), *_model(data, arch), *_learning(data, arch), *_batches(data, batch)], given)


def _vocabulary(data: SentenceFacts) -> Iterator[PlannedSetting]:
    if data.scheme == "BIOES":
        yield PlannedSetting("tag.scheme", "BIOES", "the scheme of the training data")
    size = min(max(data.characters, 4) + SPECIAL, MOST_CHARACTERS)
    yield PlannedSetting("tokenizer.kind", "character", "the label of an unknown word depends mostly on its spelling")
    yield PlannedSetting("tokenizer.vocab_size", size, "all characters that occur at least three times")


def _model(data: SentenceFacts, arch: str) -> Iterator[PlannedSetting]:
    yield PlannedSetting("model.arch", arch, "reads words in both directions; a CRF scores sequences of labels")
    table = min(1 << max(math.ceil(math.log2(data.distinct)), 8), LARGEST_TABLE)
    yield PlannedSetting("model.word_hash_rows", table, f"{data.distinct:,} different words, each hashed to two rows")
    small = data.total < 50_000
    if arch == "bigru-crf":
        yield PlannedSetting("model.width", 64 if small else 128, f"{data.total:,.0f} words")
    yield PlannedSetting("model.embedding_width", 50 if small else 100, f"{data.total:,.0f} words")


def _learning(data: SentenceFacts, arch: str) -> Iterator[PlannedSetting]:
    metric, reason = ("f1", "of spans") if data.marks_spans else ("accuracy", "the share of words with the right label")
    yield PlannedSetting("train.metric", metric, reason)
    yield from choose_learning_rate(3e-3, 100, 0.4, muon=arch == "transformer-crf")


def _batch_tokens(data: SentenceFacts) -> int:
    """About 32 sentences; fewer of little data, so that an epoch has enough steps."""
    return batch_size((32 if data.sentences >= 2_000 else 12) * (data.words + 1), least=128)


def _batches(data: SentenceFacts, batch: int) -> Iterator[PlannedSetting]:
    yield PlannedSetting("train.batch_tokens", batch, f"about {max(round(batch / (data.words + 1)), 1)} sentences")
    epoch = steps_per_epoch(data.sentences * (data.words + 1), batch, filled=0.95)
    every = min(max(epoch, STEPS_BETWEEN_VALIDATIONS), 1000)
    yield from choose_length(epoch, validate_every=every, patience=4, max_steps=max(EPOCHS * epoch, LEAST_STEPS))
