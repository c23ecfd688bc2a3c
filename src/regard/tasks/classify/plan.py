"""The plan for classifiers of documents: sizes and lengths from the data, each choice with its reason."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regard.training.device import Machine
from regard.training.plan import CHARACTERS_PER_TOKEN, PlannedSetting, is_given

LONG_WORD = 15.0  # characters between spaces; languages without spaces have many more
UPDATES_AT_LEAST = 50  # between validations
EPOCHS = 12  # after which small corpora have long been learnt by heart


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
    def tokens_a_word(self) -> float:
        """Punctuation counts; where there are no words, subwords do."""
        return 1.2 if self.by_words else (self.word_length + 1) / CHARACTERS_PER_TOKEN

    @property
    def tokens(self) -> float:
        """Mean number of tokens of a document."""
        return self.words * self.tokens_a_word


def make_document_plan(
    data: DocumentFacts, machine: Machine, given: Mapping[str, Mapping[str, Any]]
) -> list[PlannedSetting]:
    """Choose whatever `given`, as tables of settings, leaves open."""
    arch = given.get("model", {}).get("arch", "han")
    choices = [*_reading(data), *_vocabulary(data), *_model(data, arch), *_learning(data, arch)]
    chosen = {choice.name: choice.value for choice in choices}
    longest = given.get("classify", {}).get("max_tokens", chosen["classify.max_tokens"])
    batch = given.get("train", {}).get("batch_tokens") or _batch_tokens(data, longest)
    choices += _batches(data, batch)
    return [choice for choice in choices if not is_given(choice.name, given)]


def _reading(data: DocumentFacts) -> Iterator[PlannedSetting]:
    if data.several:
        yield PlannedSetting("classify.multi_label", True, "some documents have several labels, or none")
    wanted = data.long * data.tokens_a_word
    longest = min(max(50 * math.ceil(wanted / 50), 100), 600)
    share = "nineteen in twenty documents are shorter" if longest >= wanted else "the middle of longer ones is left out"
    yield PlannedSetting("classify.max_tokens", longest, share)
    if not data.several and data.rarest < 0.5 / data.labels:
        yield PlannedSetting("classify.class_weights", "balanced", f"the rarest of {data.labels} labels is seldom")


def _vocabulary(data: DocumentFacts) -> Iterator[PlannedSetting]:
    words = data.documents * data.words
    if not data.by_words:
        yield PlannedSetting("tokenizer.kind", "bpe", "subwords: spaces do not divide this text into words")
        yield PlannedSetting("tokenizer.vocab_size", 8000, "few enough that each subword is seen often")
        return
    size = int(min(max(12 * math.sqrt(words), 500), 50_000)) // 100 * 100
    yield PlannedSetting("tokenizer.kind", "word", "what is shaded later are words")
    yield PlannedSetting("tokenizer.lowercase", True, "the first word of a sentence is the same word")
    yield PlannedSetting("tokenizer.vocab_size", size, f"{_round(words)} words: those that are seen some five times")


def _model(data: DocumentFacts, arch: str) -> Iterator[PlannedSetting]:
    yield PlannedSetting("model.arch", arch, "words to sentences to documents, and both can be shaded")
    small, large = data.documents < 5_000, data.documents >= 200_000
    if arch == "han":
        reason = f"{data.documents:,} documents"
        yield PlannedSetting("model.embedding", 64 if small else 200 if large else 128, reason)
        yield PlannedSetting("model.width", 32 if small else 100 if large else 64, reason)
    dropout = 0.2 if large else 0.5 if arch == "han" else 0.3
    yield PlannedSetting("model.dropout", dropout, "the less data, the more dropout")


def _learning(data: DocumentFacts, arch: str) -> Iterator[PlannedSetting]:
    metric = "f1" if data.several or data.rarest < 0.5 / data.labels else "accuracy"
    yield PlannedSetting(
        "train.metric", metric, "rare labels count" if metric == "f1" else "labels are about as frequent"
    )
    if arch == "encoder":
        yield PlannedSetting("train.optimizer", "muon", "about half the updates that Adam needs")
        yield PlannedSetting("train.muon_learning_rate", 0.02, "of Muon's matrices")
    yield PlannedSetting("train.learning_rate", 3e-3, "what these networks bear")
    yield PlannedSetting("train.warmup_steps", 100, "a short climb is enough")
    yield PlannedSetting("train.schedule", "constant", "the end is not known yet; the rate falls when it comes")
    yield PlannedSetting(
        "train.cooldown", 0.2, "the last fifth, whatever ends it: minutes, updates, or no better validation"
    )
    yield PlannedSetting("classify.word_dropout", 0.2 if data.words >= 30 else 0.1, "no single word shall decide alone")


def _batch_tokens(data: DocumentFacts, longest: int) -> int:
    """Some thirty documents, or as many updates an epoch as a small collection needs."""
    documents = 32 if data.documents >= 2_000 else 16
    wanted = documents * min(data.tokens, longest)
    return max(1 << round(math.log2(wanted)), 256)


def _batches(data: DocumentFacts, batch: int) -> Iterator[PlannedSetting]:
    yield PlannedSetting("train.batch_tokens", batch, f"about {max(round(batch / data.tokens), 1)} documents")
    epoch = max(round(data.documents * data.tokens / (0.9 * batch)), 1)
    eased = min(max(2 * epoch, 200), 1500)
    yield PlannedSetting(
        "train.regularization_warmup", eased, "dropout grows: what knows nothing cannot learn by heart"
    )
    every = min(max(epoch // 2, UPDATES_AT_LEAST), 2000)
    yield PlannedSetting("train.validate_every", every, f"an epoch is about {epoch:,} updates")
    yield PlannedSetting("train.checkpoint_every", min(every, 500), "so little is lost when it is killed")
    most = max(EPOCHS * epoch, 20 * every)
    yield PlannedSetting("train.max_steps", most, f"{round(most / epoch)} epochs, if nothing ends it before")
    yield PlannedSetting("train.patience", 6, "validations without a better one; then it cools down and stops")


def _round(number: float) -> str:
    return f"{number / 1e6:.1f} million" if number >= 1e6 else f"{round(number, -3):,.0f}"
