"""Training data of taggers: sentences as tensors of subwords, held-out parts, and the encoded data in a run folder."""

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

from regard.config import DataSettings
from regard.data.batches import TensorBatch, make_documents
from regard.data.store import DocumentStore, Sentences, StorePart, write_documents
from regard.errors import CorpusError
from regard.files import write_atomically
from regard.run import Run
from regard.tasks.dataset import Log, Parts, PreparedData, hold_out, new_store, read_train
from regard.tasks.tag.conll import TaggedSentence, read_tagged
from regard.tasks.tag.settings import TagSettings
from regard.tasks.tag.spans import Scheme, find_scheme, learned_scheme, rewrite
from regard.tasks.tag.words import find_clitics
from regard.text.tokenizer import EOS, SOS, Tokenizer

# ---------------------------------------------------------------------------------------------------------------------
# Encoding. The classes of classification are reused: a sentence is stored as a "document", a word as its "sentence".


@dataclass(frozen=True)
class TagBatch(TensorBatch):
    """A batch of B sentences of T words, each word a sequence of S token ids, with the labels of the words."""

    ids_BTS: Tensor
    mask_BTS: Tensor
    target_BT: Tensor
    """Index of the label of each word; 0 for padding, and if there are no labels."""
    index_B: Tensor
    """Indices of the sentences in the training data."""

    @property
    def mask_BT(self) -> Tensor:
        """True for words, False for padding."""
        return self.mask_BTS[:, :, 0]

    @property
    def target_tokens(self) -> int:
        """Number of words in the batch, without padding; the loss is a sum over these words."""
        return int(self.mask_BT.sum())


def make_words(
    sentences: Sequence[Sentences], pad: int, labels: Sequence[Sequence[int]] = (),
    index: NDArray[np.int64] | None = None,
) -> TagBatch:  # fmt: skip
    """Make a batch of sentences, in which each word is a list of token ids; `pad` is the id of the padding token.

    `labels` has the label index of each word of each sentence, if known. `index` has the index of each sentence in the
    training data, by default its place in the batch.
    """
    made = make_documents(sentences, pad, index=index)
    target_BT = torch.zeros(made.mask_BUS.shape[:2], dtype=torch.int64)
    if labels:
        target_BT[made.mask_BUS[:, :, 0]] = torch.tensor(list(chain.from_iterable(labels)), dtype=torch.int64)
    return TagBatch(made.ids_BUS, made.mask_BUS, target_BT, made.index_B)


def encode_words(
    sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, settings: TagSettings
) -> list[list[list[int]]]:
    """Return the token ids of each word of each sentence, with SOS before and EOS after each word.

    Words with more than `settings.max_word_pieces` tokens lose tokens in the middle.
    """
    distinct = list(dict.fromkeys(chain.from_iterable(sentences)))
    words, most = {}, settings.max_word_pieces
    for word, ids in zip(distinct, tokenizer.encode_many(distinct), strict=True):
        kept = ids if len(ids) <= most else ids[: (most + 1) // 2] + ids[-(most // 2) :]
        words[word] = [SOS, *kept, EOS]
    return [[words[word] for word in sentence] for sentence in sentences]


class WordWindow(NamedTuple):
    """A part of a long sentence: the model reads the words `start` to `end` - 1, and labels `first` to `last` - 1.

    The words that are read but not labeled in this window give context.
    """

    start: int
    end: int
    first: int
    last: int


def windows(length: int, most: int) -> Iterator[WordWindow]:
    """Divide a sentence of `length` words into overlapping windows of at most `most` words.

    Each word is labeled in exactly one window.
    """
    margin = 0 if length <= most else most // 5  # words at the ends that give context but get no label
    start = first = 0
    while first < length:
        end = min(start + most, length)
        last = length if end == length else end - margin
        yield WordWindow(start, end, first, last)
        start, first = last - margin, last


# ---------------------------------------------------------------------------------------------------------------------
# Training data

CLITICS = "clitics.jsonl"
"""File in the store with the English clitics that are separate words in the training data."""


@dataclass(frozen=True)
class SentenceFacts:
    """Statistics of the training sentences, from which `make_tag_plan` chooses settings."""

    sentences: int
    words: float
    """Mean number of words per sentence."""
    distinct: int
    """Number of different words."""
    word_length: float
    """Mean number of characters per word."""
    characters: int
    """Number of different characters that occur at least three times."""
    labels: int
    scheme: Scheme
    """How labels mark spans, e.g. names; "plain" if they mark none, e.g. parts of speech."""

    @property
    def total(self) -> float:
        """Number of words in all training sentences."""
        return self.sentences * self.words


@dataclass(frozen=True)
class PreparedSentences(PreparedData[DocumentStore, TaggedSentence]):
    """The encoded training data of a tagger, and its validation and test sentences.

    In its `DocumentStore`, a "document" is a sentence, and the "sentences" of a document are the words.
    """

    labels: tuple[str, ...]
    clitics: tuple[str, ...]
    """English clitics, such as "n't", that are separate words in the training data."""


class TrainingSentences:
    """The labeled sentences for training, validation and test, read from files.

    If there is no file for validation or test, sentences of the training files are held out for it. Sentences with the
    same words are never in two of the three parts.
    """

    def __init__(self, data: DataSettings, settings: TagSettings, seed: int):
        read = partial(read_tagged, column=settings.column)
        found = read_train(data, read, "a file of labeled words", "sentences")
        self.scheme: Scheme = find_scheme(sentence.tags for corpus in found for sentence in corpus)
        """The scheme of the training files. For spans, training uses BIOES, and held-out parts use `tag.scheme`."""
        parts = hold_out(data, found, read, lambda sentence: " ".join(sentence.tokens), "sentences", seed)
        self.corrected = 0
        """Number of training labels that break the rules of their scheme, such as I- after O; 0 for IOB1."""
        if self.scheme != "IOB1":
            tags = (sentence.tags for sentence in parts.train())
            self.corrected = sum(sum(map(str.__ne__, rewrite(own, self.scheme), own)) for own in tags)
        learned, answers = learned_scheme(self.scheme), "plain" if self.scheme == "plain" else settings.scheme
        self.parts = Parts(
            parts.unit,
            [([_rewrite(one, learned) for one in sentences], weight) for sentences, weight in parts.corpora],
            {part: [_rewrite(one, answers) for one in sentences] for part, sentences in parts.held_out.items()},
        )
        self.written = len({tag for corpus in found for sentence in corpus for tag in sentence.tags})
        """Number of different labels in the training files, in their own scheme."""
        self.labels = tuple(sorted({tag for sentence in self.parts.train() for tag in sentence.tags}))
        """The labels in training. Held-out words with other labels count as mistakes."""
        if len(self.labels) < 2:
            problem = f'every word is labeled "{self.labels[0]}"; training needs at least two labels'
            raise CorpusError(data.train[0].source, f"{problem}: give other data, or another tag.column")

    def __len__(self) -> int:
        return len(self.parts)

    def describe(self) -> str:
        kind = f"{self.written} labels"
        if self.scheme != "plain":
            kind += f" that mark spans ({self.scheme})"
        if self.corrected:
            kind += f"; {self.corrected:,} broke its rules and {'was' if self.corrected == 1 else 'were'} corrected"
        return f"{self.parts.describe()}; {kind}"

    @cached_property
    def words(self) -> Counter[str]:
        """How often each word occurs in the training sentences."""
        return Counter(token for sentence in self.parts.train() for token in sentence.tokens)

    @cached_property
    def facts(self) -> SentenceFacts:
        characters = Counter[str]()
        for word, count in self.words.items():
            for character in word:
                characters[character] += count
        total = self.words.total()
        return SentenceFacts(
            sentences=len(self),
            words=total / len(self),
            distinct=len(self.words),
            word_length=characters.total() / total,
            characters=sum(count >= 3 for count in characters.values()),
            labels=len(self.labels),
            scheme=self.scheme,
        )


def write_store(run: Run, sentences: TrainingSentences, log: Log) -> None:
    """Encode the sentences and write them into the folder store/ of a run; `log` receives progress messages.

    Training sentences with more than `tag.max_words` words are divided into parts.
    """
    log(f"encoding {len(sentences):,} sentences")
    settings: TagSettings = run.recipe.task
    tokenizer, learned = run.tokenizers[0], learned_scheme(sentences.scheme)
    index = {label: place for place, label in enumerate(run.labels)}
    short: list[TaggedSentence] = []
    ends = []
    for found, weight in sentences.parts.corpora:
        for tokens, tags in found:
            parts = -(-len(tokens) // settings.max_words)
            for part in range(parts):
                piece = slice(part * len(tokens) // parts, (part + 1) * len(tokens) // parts)
                short.append(TaggedSentence(tokens[piece], rewrite(tags[piece], learned)))  # a cut may divide a span
        ends.append(StorePart(len(short), weight))
    words = encode_words([sentence.tokens for sentence in short], tokenizer, settings)
    labels = ([index[tag] for tag in sentence.tags] for sentence in short)
    held_out = {part: (one._asdict() for one in found) for part, found in sentences.parts.held_out.items()}
    with new_store(run, held_out) as folder:
        write_documents(folder / "train", zip(words, labels, strict=True), ends, tokenizer.size)
        write_atomically(folder / CLITICS, f"{json.dumps(find_clitics(sentences.words))}\n".encode())


def _rewrite(sentence: TaggedSentence, scheme: Scheme) -> TaggedSentence:
    return sentence._replace(tags=rewrite(sentence.tags, scheme))
