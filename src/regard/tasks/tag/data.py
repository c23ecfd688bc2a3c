"""Sentences whose words have labels: CoNLL files of columns, CoNLL-U, and JSON lines, in and out.

A CoNLL file has a word a line, its columns between tabs or spaces, and an empty line after each sentence; the shared
tasks on chunks (2000), names (2002, 2003) and later ones all come in it. The first column is the word, and the label is
in the last one unless another is asked for.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import Corpus, DataSettings, Recipe
from regard.data.batches import make_documents
from regard.data.records import read_kept, read_objects
from regard.data.store import DocumentStore, Sentences, StorePart, open_documents, write_documents
from regard.errors import CorpusError, SettingsError
from regard.files import read_lines, split_suffix, write_atomically
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
from regard.tasks.tag.plan import SentenceFacts
from regard.tasks.tag.spans import OUTSIDE, Scheme, find_scheme, learnt_scheme, merge, rewrite
from regard.tasks.tag.words import find_clitics
from regard.text.tokenizer import EOS, SOS, Tokenizer

FORMATS = ".conll .txt .bio .tsv (a word and its label a line), .conllu, .jsonl (tokens and tags), also .gz .zst"
FORM = 'a line is an object with "tokens" and "tags"'
COLUMNS = ("", ".conll", ".txt", ".bio", ".iob", ".iob2", ".tsv", ".dat", ".data")
"""Suffixes of files of columns."""
OF_WORDS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".jsonl")
"""Suffixes of files that hold words and never plain text."""
LOOKED_AT = 100
"""Lines at the beginning of a file that tell whether it is columns."""
DOCUMENT = "-DOCSTART-"
"""A line that begins with this begins a document, and is no word."""
UPOS = 3
"""Column of CoNLL-U with the universal part of speech."""
FIELDS = 10
_SEPARATORS = " \t\n\r"
_SEPARATOR_RUN = re.compile(f"[{_SEPARATORS}]+")
_COLUMN = re.compile(r"[^ \t]+")  # other spaces, such as a no-break space, belong to words


class TaggedSentence(NamedTuple):
    """Words and their labels; a file of words alone has none."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]


class _Row(NamedTuple):
    line: int
    fields: list[str]


def read_tagged(corpus: Corpus, column: int = 0) -> Iterator[TaggedSentence]:
    """Stream the sentences of a file. `column`, counted from 1, holds the labels; 0: the last one."""
    if not corpus.source:
        raise CorpusError("--source", "no file given")
    if corpus.target:
        raise CorpusError(corpus.target, "words and their labels stand in one file; leave out --target")
    path = Path(corpus.source)
    suffix = split_suffix(path)[0]
    if suffix == ".jsonl":
        return _read_jsonl(path)
    if suffix == ".conllu":
        return _read_conllu(path, column or UPOS + 1)
    if suffix not in COLUMNS:
        raise CorpusError(path, f"not a file of labelled words; they come as {FORMATS}")
    return _read_columns(path, column, read_lines(path))


def read_tagged_lines(lines: Iterable[str], where: str, column: int = 0) -> Iterator[TaggedSentence]:
    """The same of lines of columns that come from elsewhere; mistakes are told of `where`."""
    return _read_columns(where, column, lines)


def read_words(path: str | Path) -> Iterator[tuple[str, ...]]:
    """The words of each sentence of a file, whatever else it holds: labels may be there or not."""
    path = Path(path)
    suffix = split_suffix(path)[0]
    if suffix == ".jsonl":
        return (
            tokens for number, record in read_objects(path, FORM) if (tokens := _texts(record, "tokens", path, number))
        )
    if suffix == ".conllu":
        return (sentence.tokens for sentence in _read_conllu(path, UPOS + 1))
    return words_of_lines(read_lines(path))


def words_of_lines(lines: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The words of each sentence in lines of columns, as many as there are: the first is the word."""
    return (tuple(row.fields[0] for row in rows) for rows in _sentences(lines))


def looks_like_columns(lines: Sequence[str]) -> bool:
    """Whether the first lines of a file are rather columns than text: nearly all have as many, and some are empty."""
    counts = Counter(len(_COLUMN.findall(line)) for line in lines)
    empty = counts.pop(0, 0)
    if not 0 < empty <= counts.total() / 2 or counts.total() < 3:  # paragraphs have an empty line after each
        return False
    [(columns, rows)] = counts.most_common(1)
    return 2 <= columns <= FIELDS and rows >= 0.9 * counts.total()


def write_conll(sentences: Iterator[TaggedSentence] | Sequence[TaggedSentence]) -> Iterator[str]:
    """Lines of a CoNLL file: word, space, label; an empty line after each sentence."""
    for tokens, tags in sentences:
        for token, tag in zip(tokens, tags, strict=True):
            yield f"{_SEPARATOR_RUN.sub('_', token.strip(_SEPARATORS))} {tag}"
        yield ""


def _sentences(lines: Iterable[str]) -> Iterator[list[_Row]]:
    """The rows of each sentence. Comments and lines that begin a document are left out."""
    numbered = (_Row(number, _COLUMN.findall(line)) for number, line in enumerate(lines, 1))
    for has_words, rows in groupby(numbered, key=lambda row: bool(row.fields) and row.fields[0] != DOCUMENT):
        found = list(rows) if has_words else []
        first = next((place for place, row in enumerate(found) if not _is_comment(row, found[-1])), len(found))
        if found[first:]:
            yield found[first:]


def _is_comment(row: _Row, last: _Row) -> bool:
    """Before the first word, a line such as "# text = ..."; "#" in as many columns as the last word has is a word."""
    fields = row.fields
    return fields[0].startswith("#") and (len(fields) != len(last.fields) or fields[2:3] == ["="])


def _read_columns(path: str | Path, column: int, lines: Iterable[str]) -> Iterator[TaggedSentence]:
    least = max(column, 2)
    for rows in _sentences(lines):
        for row in rows:
            if len(row.fields) < least:
                problem = f"{len(row.fields)} column{'s' * (len(row.fields) > 1)} in this row, not at least {least}"
                raise CorpusError(path, f"{problem}; a row is a word and its label", line=row.line)
        tags = tuple(row.fields[column - 1] for row in rows)  # column 0 gives the last one
        yield TaggedSentence(tuple(row.fields[0] for row in rows), tags)


def _read_conllu(path: Path, column: int) -> Iterator[TaggedSentence]:
    """Syntactic words: what is written as one ("du") is given in its parts, what is not written is left out."""
    if column > FIELDS:
        raise CorpusError(path, f"CoNLL-U has {FIELDS} columns, so tag.column cannot be {column}")
    numbered = (_Row(number, line.split("\t")) for number, line in enumerate(read_lines(path), 1))
    for has_words, rows in groupby(numbered, key=lambda row: bool(row.fields[0].strip())):
        kept = [row for row in rows if not row.fields[0].startswith("#")] if has_words else []
        for row in kept:
            if len(row.fields) != FIELDS:
                problem = f"{len(row.fields)} columns between tabs, not the {FIELDS} of CoNLL-U"
                raise CorpusError(path, problem, line=row.line)
        words = [row.fields for row in kept if row.fields[0].isdecimal()]
        if words:
            yield TaggedSentence(tuple(word[1] for word in words), tuple(word[column - 1] for word in words))


def _read_jsonl(path: Path) -> Iterator[TaggedSentence]:
    """Objects with "tokens" and "tags", lists of the same length."""
    for number, record in read_objects(path, FORM):
        tokens, tags = (_texts(record, key, path, number) for key in ("tokens", "tags"))
        if len(tokens) != len(tags):
            raise CorpusError(path, f"{len(tokens)} tokens, but {len(tags)} tags", line=number)
        if tokens:
            yield TaggedSentence(tokens, tags)


def _texts(record: dict[str, Any], key: str, path: Path, number: int) -> tuple[str, ...]:
    values = record.get(key)
    if not isinstance(values, list) or not all(
        # A no-break space is a word, as in CoNLL files. The first test is the faster one, and nearly always enough.
        isinstance(value, str) and (value.strip() or value.strip(_SEPARATORS))
        for value in values
    ):
        raise CorpusError(path, f'no list of texts under "{key}"; {FORM}', line=number)
    return tuple(values)


def to_json(sentence: TaggedSentence) -> str:
    """A line of JSON that `read_tagged` reads back."""
    return json.dumps({"tokens": sentence.tokens, "tags": sentence.tags}, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------------------------------
# Encoding: a sentence is stored like a document, a word like one of its sentences, with one label per word.

OVERLAP = 5
"""Stretches of a long sentence share a part in so many of their words on each side, to be read in and not answered."""


@dataclass(frozen=True)
class TagBatch:
    """Sentences of words of pieces, and the words' labels if they have any."""

    ids_BTS: Tensor
    mask_BTS: Tensor
    target_BT: Tensor
    """Number of each word's label; 0 on padding, and where there are none."""
    index_B: Tensor
    """Which sentences these are."""

    @property
    def mask_BT(self) -> Tensor:
        """True where a word is real."""
        return self.mask_BTS[:, :, 0]

    @property
    def target_tokens(self) -> int:
        """What the loss is summed over: words."""
        return int(self.mask_BT.sum())

    def to(self, device: torch.device | str) -> TagBatch:
        """The same on another device."""
        return TagBatch(
            self.ids_BTS.to(device), self.mask_BTS.to(device), self.target_BT.to(device), self.index_B.to(device)
        )

    def rows(self, index_R: Tensor) -> TagBatch:
        """Some of the sentences, padded as before."""
        return TagBatch(self.ids_BTS[index_R], self.mask_BTS[index_R], self.target_BT[index_R], self.index_B[index_R])


def make_words(
    sentences: Sequence[Sentences], pad: int, labels: Sequence[Sequence[int]] = (),
    index: NDArray[np.int64] | None = None,
) -> TagBatch:  # fmt: skip
    """Join sentences, each a list of words as pieces, into tensors. `labels` are numbers, one a word."""
    made = make_documents(sentences, pad, index=index)
    target_BT = torch.zeros(made.mask_BUS.shape[:2], dtype=torch.int64)
    if labels:
        target_BT[made.mask_BUS[:, :, 0]] = torch.tensor(list(chain.from_iterable(labels)), dtype=torch.int64)
    return TagBatch(made.ids_BUS, made.mask_BUS, target_BT, made.index_B)


def encode_words(
    sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, settings: TagSettings
) -> list[list[list[int]]]:
    """The pieces of each word of each sentence, between marks of its beginning and its end."""
    distinct = list(dict.fromkeys(chain.from_iterable(sentences)))
    pieces = dict(zip(distinct, tokenizer.encode_many(distinct), strict=True))
    words = {word: [SOS, *_without_middle(ids, settings.max_word_pieces), EOS] for word, ids in pieces.items()}
    return [[words[word] for word in sentence] for sentence in sentences]


def _without_middle(ids: list[int], most: int) -> list[int]:
    return ids if len(ids) <= most else ids[: (most + 1) // 2] + ids[-(most // 2) :]


class WordWindow(NamedTuple):
    """Words `start` to `end` of a sentence are read together; labels are taken for those from `first` to `last`."""

    start: int
    end: int
    first: int
    last: int


def stretches(length: int, most: int) -> Iterator[WordWindow]:
    """How a sentence of so many words is read with at most so many at a time. Each word is answered once."""
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
    """Everything that training reads."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: DocumentStore
    """A word is a row of pieces, and a sentence has a label for each."""
    valid: list[TaggedSentence]
    test: list[TaggedSentence]
    clitics: tuple[str, ...]
    """English clitics, such as "n't", that are words in the training data."""


class TrainingSentences:
    """The labelled sentences of all parts. The same sentence is never in two of them, unless the files say so."""

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
            kind += f"; {self.mended:,} broke its rules and {'was' if self.mended == 1 else 'were'} mended"
        return f"{shared}; {kind}"

    @cached_property
    def words(self) -> Counter[str]:
        """How often each word is in the training sentences."""
        return Counter(token for sentence in self.parts.train() for token in sentence.tokens)

    @cached_property
    def facts(self) -> SentenceFacts:
        """What the plan must know."""
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
    """What `prepare_sentences` wrote. A finished run has put its store away: it is made again from the files."""
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
    """A sentence that is too long is learnt as several of about equal length."""
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
    """Labels that are not as the scheme would write the same spans. In IOB1 there is nothing to break."""
    return 0 if scheme == "IOB1" else sum(map(str.__ne__, rewrite(sentence.tags, scheme), sentence.tags))


def _labels(train: Iterator[TaggedSentence], where: str) -> tuple[str, ...]:
    """The labels that can be learnt, sorted. Held-out ones that are not among them count as mistakes when scored."""
    labels = sorted({tag for sentence in train for tag in sentence.tags})
    if len(labels) < 2:
        hint = "; the words' labels are in another column (tag.column)?" if labels != [OUTSIDE] else ""
        raise CorpusError(where, f'every word is labelled "{labels[0]}"; there must be at least two labels{hint}')
    return tuple(labels)
