"""The plan for classifiers of documents: sizes and lengths from the data, each choice with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from regard.training.device import Machine
from regard.training.plan import (
    CHARACTERS_PER_TOKEN,
    PlannedSetting,
    Tables,
    batch_size,
    choose_learning_rate,
    choose_length,
    leave_given,
    steps_per_epoch,
)

LONG_WORD = 15.0  # characters between spaces; languages without spaces have many more
LEAST_STEPS = 50  # between validations
EPOCHS = 12  # after which a model of a small corpus has long overfitted


@dataclass(frozen=True)
class DocumentFacts:
    """What the plan knows of the training data."""

    documents: int
    words: float
    """Mean number of words of a document, as spaces divide it."""
    long: float
    """Number of words that one document in twenty exceeds."""
    word_length: float
    """Mean number of characters of such a word."""
    labels: int
    rarest: float
    """Share of the documents that the rarest label has."""
    several: bool
    """Some documents have several labels, or none."""

    @property
    def by_words(self) -> bool:
        """Whether spaces divide the text into words."""
        return self.word_length < LONG_WORD

    @property
    def tokens_per_word(self) -> float:
        """Punctuation marks are tokens too; text without spaces is divided into subwords."""
        return 1.2 if self.by_words else (self.word_length + 1) / CHARACTERS_PER_TOKEN

    @property
    def tokens(self) -> float:
        """Mean number of tokens of a document."""
        return self.words * self.tokens_per_word


def make_document_plan(data: DocumentFacts, machine: Machine, given: Tables) -> list[PlannedSetting]:
    """Choose the settings that `given` leaves open."""
    arch = given.get("model", {}).get("arch", "han")
    choices = [*_reading(data), *_vocabulary(data), *_model(data, arch), *_learning(data, arch)]
    chosen = {choice.name: choice.value for choice in choices}
    longest = given.get("classify", {}).get("max_tokens", chosen["classify.max_tokens"])
    choices += _batches(data, given.get("train", {}).get("batch_tokens") or _batch_tokens(data, longest))
    return leave_given(choices, given)


def _reading(data: DocumentFacts) -> Iterator[PlannedSetting]:
    if data.several:
        yield PlannedSetting("classify.multi_label", True, "some documents have several labels, or none")
    wanted = data.long * data.tokens_per_word
    longest = min(max(50 * math.ceil(wanted / 50), 100), 600)
    share = "19 of 20 documents are shorter" if longest >= wanted else "the middle of longer documents is left out"
    yield PlannedSetting("classify.max_tokens", longest, share)
    if not data.several and data.rarest < 0.5 / data.labels:
        yield PlannedSetting("classify.class_weights", "balanced", f"the rarest of {data.labels} labels is infrequent")


def _vocabulary(data: DocumentFacts) -> Iterator[PlannedSetting]:
    words = data.documents * data.words
    if not data.by_words:
        yield PlannedSetting("tokenizer.kind", "bpe", "subwords: spaces do not divide this text into words")
        yield PlannedSetting("tokenizer.vocab_size", 8000, "few enough that each subword is seen often")
        return
    size = int(min(max(12 * math.sqrt(words), 500), 50_000)) // 100 * 100
    count = f"{words / 1e6:.1f} million" if words >= 1e6 else f"{round(words, -3):,.0f}"
    yield PlannedSetting("tokenizer.kind", "word", "attention weights are shown per word")
    yield PlannedSetting("tokenizer.lowercase", True, "the first word of a sentence is the same word")
    yield PlannedSetting("tokenizer.vocab_size", size, f"{count} words: those that occur about five times")


def _model(data: DocumentFacts, arch: str) -> Iterator[PlannedSetting]:
    yield PlannedSetting("model.arch", arch, "attention over words and over sentences, and both can be shown")
    small, large = data.documents < 5_000, data.documents >= 200_000
    if arch == "han":
        reason = f"{data.documents:,} documents"
        yield PlannedSetting("model.embedding_width", 64 if small else 200 if large else 128, reason)
        yield PlannedSetting("model.width", 32 if small else 100 if large else 64, reason)
    dropout = 0.2 if large else 0.5 if arch == "han" else 0.3
    yield PlannedSetting("model.dropout", dropout, "the less data, the more dropout")


def _learning(data: DocumentFacts, arch: str) -> Iterator[PlannedSetting]:
    metric = "f1" if data.several or data.rarest < 0.5 / data.labels else "accuracy"
    reason = "rare labels count as much as others" if metric == "f1" else "labels are about equally frequent"
    yield PlannedSetting("train.metric", metric, reason)
    yield from choose_learning_rate(3e-3, 100, 0.2, muon=arch == "transformer-classifier")
    share = 0.2 if data.words >= 30 else 0.1
    yield PlannedSetting("classify.word_dropout", share, "so that no single word decides alone")


def _batch_tokens(data: DocumentFacts, longest: int) -> int:
    """About 32 documents; fewer of a small collection, so that an epoch has enough steps."""
    documents = 32 if data.documents >= 2_000 else 16
    return batch_size(documents * min(data.tokens, longest), least=256)


def _batches(data: DocumentFacts, batch: int) -> Iterator[PlannedSetting]:
    yield PlannedSetting("train.batch_tokens", batch, f"about {max(round(batch / data.tokens), 1)} documents")
    epoch = steps_per_epoch(data.documents * data.tokens, batch)
    growing = "dropout grows: a model that has learned nothing cannot overfit"
    yield PlannedSetting("train.regularization_warmup", min(max(2 * epoch, 200), 1500), growing)
    every = min(max(epoch // 2, LEAST_STEPS), 2000)
    most = max(EPOCHS * epoch, 20 * every)
    yield from choose_length(epoch, validate_every=every, patience=6, max_steps=most)
