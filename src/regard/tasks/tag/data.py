"""Training data of taggers: sentences as tensors of word pieces, held-out parts, and the store in the run folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import Corpus, DataSettings, Recipe
from regard.data.batches import TensorBatch, make_documents
from regard.data.records import read_kept
from regard.data.store import DocumentStore, Sentences, StorePart, open_documents, write_documents
from regard.errors import CorpusError, SettingsError
from regard.files import write_atomically
from regard.run import Run
from regard.tasks.dataset import (
    HELD_OUT,
    Log,
    Parts,
    hold_out,
    learn_tokenizer,
    new_store,
    open_store_folder,
    read_held_out,
    read_train,
)
from regard.tasks.tag import TagSettings
from regard.tasks.tag.conll import TaggedSentence, read_tagged
from regard.tasks.tag.plan import SentenceFacts
from regard.tasks.tag.spans import OUTSIDE, Scheme, find_scheme, learnt_scheme, merge, rewrite
from regard.tasks.tag.words import find_clitics
from regard.text.tokenizer import EOS, SOS, Tokenizer

# ---------------------------------------------------------------------------------------------------------------------
# Encoding: a sentence is stored like a document, a word like one of its sentences, with one label per word.

OVERLAP = 5
"""Neighbouring windows of a long sentence overlap by one word in this many, on each side: context without answers."""


@dataclass(frozen=True)
class TagBatch(TensorBatch):
    """Sentences as words of pieces, and the labels of the words if there are any."""

    ids_BTS: Tensor
    mask_BTS: Tensor
    target_BT: Tensor
    """The number of the label of each word; 0 for padding, and without labels."""
    index_B: Tensor
    """Numbers of the sentences."""

    @property
    def mask_BT(self) -> Tensor:
        """True for words, False for padding."""
        return self.mask_BTS[:, :, 0]

    @property
    def target_tokens(self) -> int:
        """Number of words, over which the loss is summed."""
        return int(self.mask_BT.sum())


def make_words(
    sentences: Sequence[Sentences], pad: int, labels: Sequence[Sequence[int]] = (),
    index: NDArray[np.int64] | None = None,
) -> TagBatch:  # fmt: skip
    """Join sentences, each a list of words as pieces, into tensors. `labels` has one number per word."""
    made = make_documents(sentences, pad, index=index)
    target_BT = torch.zeros(made.mask_BUS.shape[:2], dtype=torch.int64)
    if labels:
        target_BT[made.mask_BUS[:, :, 0]] = torch.tensor(list(chain.from_iterable(labels)), dtype=torch.int64)
    return TagBatch(made.ids_BUS, made.mask_BUS, target_BT, made.index_B)


def encode_words(
    sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, settings: TagSettings
) -> list[list[list[int]]]:
    """The pieces of each word of each sentence, with a start and an end token around each word."""
    distinct = list(dict.fromkeys(chain.from_iterable(sentences)))
    pieces = dict(zip(distinct, tokenizer.encode_many(distinct), strict=True))
    words = {word: [SOS, *_without_middle(ids, settings.max_word_pieces), EOS] for word, ids in pieces.items()}
    return [[words[word] for word in sentence] for sentence in sentences]


def _without_middle(ids: list[int], most: int) -> list[int]:
    return ids if len(ids) <= most else ids[: (most + 1) // 2] + ids[-(most // 2) :]


class WordWindow(NamedTuple):
    """Words `start` to `end` are read together; only the labels of words `first` to `last` are used."""

    start: int
    end: int
    first: int
    last: int


def windows(length: int, most: int) -> Iterator[WordWindow]:
    """The windows of at most `most` words in which a sentence is read. Each word is labelled in exactly one."""
    margin = 0 if length <= most else most // OVERLAP
    start = first = 0
    while first < length:
        end = min(start + most, length)
        last = length if end == length else end - margin
        yield WordWindow(start, end, first, last)
        start, first = last - margin, last


# ---------------------------------------------------------------------------------------------------------------------
# Training data

CLITICS = "clitics.jsonl"
"""File in the store with the English clitics that are words in the training data."""


@dataclass(frozen=True)
class PreparedSentences:
    """What training reads."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: DocumentStore
    """Each word is a row of pieces; each sentence has one label per word."""
    valid: list[TaggedSentence]
    test: list[TaggedSentence]
    clitics: tuple[str, ...]
    """English clitics, such as "n't", that are words in the training data."""


class TrainingSentences:
    """The labelled sentences of all parts. A sentence is never in two parts, unless the files have it so."""

    def __init__(self, data: DataSettings, settings: TagSettings, seed: int):
        read = partial(_read, settings=settings)
        found = read_train(data, read, "a file of labelled words", "sentences")
        self.scheme: Scheme = find_scheme(sentence.tags for corpus in found for sentence in corpus)
        """The scheme of the training files. Spans are learned as BIOES; held-out ones are written as answers are."""
        parts = hold_out(data, found, read, lambda sentence: " ".join(sentence.tokens), seed)
        self.mended = sum(_mistakes(sentence, self.scheme) for sentence in parts.train())
        """Number of training labels that break the rules of their scheme, such as an I- after O."""
        learnt, answers = learnt_scheme(self.scheme), "plain" if self.scheme == "plain" else settings.scheme
        self.parts = Parts(
            [([_rewrite(one, learnt) for one in sentences], weight) for sentences, weight in parts.corpora],
            {part: [_rewrite(one, answers) for one in sentences] for part, sentences in parts.held_out.items()},
        )
        self.written = len({tag for corpus in found for sentence in corpus for tag in sentence.tags})
        """Number of different labels in the training files, in their own scheme."""
        self.labels = _labels(self.parts.train(), data.train[0].source)

    def __len__(self) -> int:
        return len(self.parts)

    def describe(self) -> str:
        """How many sentences each part has, and the labels."""
        shared = self.parts.counts("sentences")
        kind = f"{self.written} labels"
        if self.scheme != "plain":
            kind += f" that mark spans ({self.scheme})"
        if self.mended:
            kind += f"; {self.mended:,} broke its rules and {'was' if self.mended == 1 else 'were'} corrected"
        return f"{shared}; {kind}"

    @cached_property
    def words(self) -> Counter[str]:
        """How often each word occurs in the training sentences."""
        return Counter(token for sentence in self.parts.train() for token in sentence.tokens)

    @cached_property
    def facts(self) -> SentenceFacts:
        """What the plan needs to know of the data."""
        words, characters = self.words, Counter[str]()
        for word, count in words.items():
            for character in word:
                characters[character] += count
        total = words.total()
        return SentenceFacts(
            sentences=len(self),
            words=total / len(self),
            distinct=len(words),
            word_length=characters.total() / total,
            characters=sum(count >= 3 for count in characters.values()),
            labels=len(self.labels),
            scheme=self.scheme,
        )


def prepare_sentences(
    run: Run, recipe: Recipe, sentences: TrainingSentences, log: Log, base: Run | None = None
) -> None:
    """Make vocabulary and labels, or take those of `base`; encode; write everything into the run."""
    settings: TagSettings = recipe.task
    labels = base.labels if base else sentences.labels
    unknown = sorted(set(sentences.labels) - set(labels))
    if unknown:
        label = merge(unknown[0], settings.scheme)
        raise SettingsError(f'the label "{label}" is unknown to the run that this one starts from')
    run.write_labels(labels)
    texts = (" ".join(sentence.tokens) for sentence in sentences.parts.train())
    tokenizer = learn_tokenizer(run, recipe, texts, log, base, "pieces")
    run.write_sizes(vocabulary=tokenizer.size, labels=len(labels))
    _write_store(run, sentences, log)


def open_sentences(run: Run, log: Log) -> PreparedSentences:
    """Read back what `prepare_sentences` wrote. The store of a finished run is made again from the files."""
    recipe = run.recipe
    folder = open_store_folder(
        run, lambda: _write_store(run, TrainingSentences(recipe.data, recipe.task, recipe.train.seed), log)
    )
    valid, test = (
        [TaggedSentence(tuple(one["tokens"]), tuple(one["tags"])) for one in read_held_out(folder, part, "sentences")]
        for part in HELD_OUT
    )
    [clitics] = read_kept(folder / CLITICS, "clitics")
    return PreparedSentences(
        run.tokenizers[0], run.labels, open_documents(folder / "train"), valid, test, tuple(clitics)
    )


def _write_store(run: Run, sentences: TrainingSentences, log: Log) -> None:
    """Encode the sentences, and write them into the run."""
    log(f"encoding {len(sentences):,} sentences")
    settings: TagSettings = run.recipe.task
    tokenizer = run.tokenizers[0]
    number = {label: place for place, label in enumerate(run.labels)}
    short: list[TaggedSentence] = []
    parts = []
    for found, weight in sentences.parts.corpora:
        pieces = (piece for sentence in found for piece in _cut(sentence, settings.max_words))
        short += [_rewrite(piece, learnt_scheme(sentences.scheme)) for piece in pieces]  # a cut may go through a span
        parts.append(StorePart(len(short), weight))
    words = encode_words([sentence.tokens for sentence in short], tokenizer, settings)
    numbered = ([number[tag] for tag in sentence.tags] for sentence in short)
    held_out = {part: (one._asdict() for one in found) for part, found in sentences.parts.held_out.items()}
    with new_store(run, held_out) as folder:
        write_documents(folder / "train", zip(words, numbered, strict=True), parts, tokenizer.size)
        write_atomically(folder / CLITICS, f"{json.dumps(find_clitics(sentences.words))}\n".encode())


def _cut(sentence: TaggedSentence, most: int) -> Iterator[TaggedSentence]:
    """Divide a sentence that is too long into parts of about equal length."""
    tokens, tags = sentence
    parts = -(-len(tokens) // most)
    for part in range(parts):
        piece = slice(part * len(tokens) // parts, (part + 1) * len(tokens) // parts)
        yield TaggedSentence(tokens[piece], tags[piece])


def _read(corpus: Corpus, settings: TagSettings) -> list[TaggedSentence]:
    sentences = list(read_tagged(corpus, settings.column))
    if not sentences:
        raise CorpusError(corpus.source, "no word here")
    return sentences


def _rewrite(sentence: TaggedSentence, scheme: Scheme) -> TaggedSentence:
    return TaggedSentence(sentence.tokens, rewrite(sentence.tags, scheme))


def _mistakes(sentence: TaggedSentence, scheme: Scheme) -> int:
    """Number of labels that differ from how the scheme writes the same spans. IOB1 has no such rules."""
    return 0 if scheme == "IOB1" else sum(map(str.__ne__, rewrite(sentence.tags, scheme), sentence.tags))


def _labels(train: Iterator[TaggedSentence], where: str) -> tuple[str, ...]:
    """The labels of the training data, sorted. Other labels in held-out data count as mistakes."""
    labels = sorted({tag for sentence in train for tag in sentence.tags})
    if len(labels) < 2:
        hint = "; are the labels in another column? (tag.column)" if labels != [OUTSIDE] else ""
        raise CorpusError(where, f'every word is labelled "{labels[0]}"; there must be at least two labels{hint}')
    return tuple(labels)
