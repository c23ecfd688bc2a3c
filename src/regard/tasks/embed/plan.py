"""The plan of word vectors: vocabulary, width and number of epochs from the words of the texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from regard.tasks.dataset import Parts
from regard.tasks.embed import TASK
from regard.text.tokenizer import FIRST_TOKEN, normalize, sample_lines, split_tokens
from regard.training.plan import PlannedSetting, Tables, choose_length, leave_given, steps_per_epoch

LEAST = 5
"""A word that occurs less often gets no vector, as in word2vec: there is too little to learn it from."""
BATCH = 4096
RATE, COOLDOWN = 0.1, 0.9
"""Found on sentences of Tatoeba (benchmarks/embed.py)."""


class WordFacts(NamedTuple):
    """What the plan needs to know about the texts."""

    words: float
    """Approximate number of words, counting punctuation marks."""
    frequent: int
    """Number of different words that occur at least `LEAST` times."""
    texts: int


def count_words(examples: Parts[str], lowercase: bool) -> WordFacts:
    """Count the words of the texts; of more than a million texts, those of a random sample."""
    counts, lines = Counter[str](), sample_lines(examples.train(), seed=1)
    for line in lines:
        counts.update(split_tokens("word", normalize(line, lowercase)))
    share = len(examples) / max(len(lines), 1)
    frequent = sum(count >= LEAST for count in counts.values())
    return WordFacts(counts.total() * share, frequent, len(examples))


def make_plan(examples: Parts[str], given: Tables) -> list[PlannedSetting]:
    """Choose the settings that the user has not `given`."""
    facts = count_words(examples, given.get("tokenizer", {}).get("lowercase", TASK.defaults["tokenizer"]["lowercase"]))
    batch = given.get("train", {}).get("batch_tokens", BATCH)
    epoch = steps_per_epoch(facts.words + facts.texts, batch, filled=1.0)  # a batch also counts the end of each text
    return leave_given([*_sizes(facts), *_rate(), *_length(facts, batch, epoch)], given)


def _sizes(facts: WordFacts) -> Iterator[PlannedSetting]:
    size = max(facts.frequent + FIRST_TOKEN + 1, 8)  # 1: the padding token; 8: the least that the setting allows
    yield PlannedSetting("tokenizer.vocab_size", size, f"{facts.frequent:,} words occur at least {LEAST} times")
    width = 100 if facts.words < 2e7 else 200 if facts.words < 2e8 else 300
    yield PlannedSetting("model.width", width, f"for {facts.words / 1e6:.1f} million words")


def _rate() -> Iterator[PlannedSetting]:
    yield PlannedSetting("train.learning_rate", RATE, "for Adagrad, which divides it by the gradients of each word")
    yield PlannedSetting("train.warmup_steps", 0, "Adagrad's first steps are not larger than later ones")
    yield PlannedSetting("train.cooldown", COOLDOWN, "share of the steps at the end in which the rate falls to 0")


def _length(facts: WordFacts, batch: int, epoch: int) -> Iterator[PlannedSetting]:
    epochs = 20 if facts.words < 2e6 else 10 if facts.words < 2e7 else 5
    yield PlannedSetting("train.batch_tokens", batch, "words whose gradients are summed")
    for choice in choose_length(epoch, validate_every=max(epoch, 10), patience=0, max_steps=epochs * epoch):
        if choice.name != "train.patience":
            yield choice
