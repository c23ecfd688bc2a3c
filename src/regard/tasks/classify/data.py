"""Labeled documents: read from TSV, CSV and JSON lines, divided into sentences, encoded and stored."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from regard.config import Corpus, DataSettings
from regard.data.records import read_objects, read_table
from regard.data.store import DocumentStore, write_documents
from regard.errors import CorpusError, nearest
from regard.files import split_suffix
from regard.run import Run
from regard.tasks import single_file
from regard.tasks.classify.settings import ClassifySettings
from regard.tasks.dataset import Log, PreparedData, hold_out, new_store, read_train, store_parts
from regard.text.tokenizer import EOS, Piece, Tokenizer
from regard.text.words import split_sentences
from regard.training.plan import CHARACTERS_PER_TOKEN

LABEL_COLUMNS = ("label", "labels", "category")
FORMATS = ".tsv (label, tab, text), .jsonl (label and text), .csv (with a header), also .gz .zst"

# A tag at which a new line begins, and any tag. "<3" and "a < b" are not tags.
_BREAK = re.compile(r"<(?:br|/?p|/?div|/?li|/?tr|/?h[1-6])\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_TAG_OR_COMMENT = re.compile(rf"{_TAG.pattern}|<!--.*?-->", re.DOTALL)


class LabeledDocument(NamedTuple):
    labels: tuple[str, ...]
    text: str


# Files


def read_documents(corpus: Corpus) -> Iterator[LabeledDocument]:
    path = single_file(corpus, "documents and their labels")
    suffix = split_suffix(path)[0]
    if suffix not in (".tsv", ".csv", ".jsonl"):
        raise CorpusError(path, f"not a file of labeled documents; the formats are {FORMATS}")
    return _read_jsonl(path) if suffix == ".jsonl" else _read_table(path)


def _read_table(path: Path) -> Iterator[LabeledDocument]:
    """Read labeled documents from a .tsv or .csv file with the columns label and text.

    In a TSV file without a header, these are the first column and the rest of the line, which may contain tabs.
    """
    for number, (label, text) in read_table(path, ("label", "text"), (LABEL_COLUMNS, ("text",)), rest=True):
        if not (name := label.strip()):
            raise CorpusError(path, "no label in this row; add one, or remove the row", line=number)
        yield LabeledDocument((name,), text)


def _read_jsonl(path: Path) -> Iterator[LabeledDocument]:
    """Read labeled documents from JSON lines: objects with "text" and "label" (text, number, or list of these)."""
    form = 'a line is an object with "label" and "text"'
    for number, record in read_objects(path, form, text="text"):
        found = [record[key] for key in LABEL_COLUMNS if key in record]
        if not found:
            raise CorpusError(path, f'no "label" here; {form}', line=number)
        labels: dict[str, None] = {}  # without repetitions
        for value in found[0] if isinstance(found[0], list) else [found[0]]:
            label = json.dumps(value) if isinstance(value, int | float) else value  # bool is a subclass of int
            if not isinstance(label, str) or not label.strip():
                problem = f"{json.dumps(value)} is not a label; give a string that is not empty, or a number"
                raise CorpusError(path, problem, line=number)
            labels[label.strip()] = None
        yield LabeledDocument(tuple(labels), record["text"])


# Text


def plain(text: str) -> str:
    """Remove HTML markup from a text: tags such as <br> and <p> become line ends, other tags and comments are deleted.

    Entities such as &amp; become characters.
    """
    if "<" in text:
        text = _BREAK.sub("\n", text)
        # No comment ends after `end`. Searching for the end of each "<!--" would take quadratic time.
        end = text.rfind("-->") + len("-->") if "-->" in text else 0
        text = _TAG_OR_COMMENT.sub("", text[:end]) + _TAG.sub("", text[end:])
    return html.unescape(text) if "&" in text else text


def sentences_of(text: str, settings: ClassifySettings) -> list[str]:
    """Divide each line of a document into sentences. A sentence without a space ("Dr.") is joined to the next one."""
    found: list[str] = []
    for line in (plain(text) if settings.markup == "remove" else text).splitlines():
        joined: list[str] = []
        for sentence in split_sentences(line):
            if joined and " " not in joined[-1]:
                joined[-1] += f" {sentence}"
            else:
                joined.append(sentence)
        found += joined
    return found


Window = tuple[int, int, int]
"""A part of a sentence, which the model reads like a sentence: sentence index, first token, last token + 1."""


def make_windows(lengths: Sequence[int], settings: ClassifySettings) -> tuple[list[Window], int]:
    """Choose the windows (sentences, or parts of long sentences) of a document that the model reads.

    `lengths`: the number of tokens of each sentence. Returns the windows and the number of tokens that are left out. A
    sentence of more than `sentence_tokens` is divided into windows of about equal length. If the document has more than
    `max_tokens`, windows are taken alternately from its start and its end (`truncate = "middle"`), or only from its
    start (`truncate = "end"`).
    """
    windows: list[Window] = []
    for number, length in enumerate(lengths):
        parts = -(-length // settings.sentence_tokens)
        windows += [(number, part * length // parts, (part + 1) * length // parts) for part in range(parts)]
    if sum(lengths) <= settings.max_tokens:
        return windows, 0
    first, last = 0, len(windows)
    head = tail = 0  # tokens that are kept from the start and from the end
    while first < last:
        from_start = settings.truncate == "end" or head <= tail
        _, start, end = windows[first if from_start else last - 1]
        size = end - start
        if head + tail + size > settings.max_tokens:
            break
        if from_start:
            first, head = first + 1, head + size
        else:
            last, tail = last - 1, tail + size
    return windows[:first] + windows[last:], sum(lengths) - head - tail


class EncodedDocument(NamedTuple):
    """The token ids of each window (a sentence, or a part of a long one), and the number of tokens left out.

    A document without text has one window with only EOS.
    """

    sentences: list[list[int]]
    truncated_tokens: int


def encode_document(text: str, tokenizer: Tokenizer, settings: ClassifySettings) -> EncodedDocument:
    encoded = tokenizer.encode_many(sentences_of(text, settings))
    windows, truncated = make_windows([len(ids) for ids in encoded], settings)
    return EncodedDocument([encoded[number][start:end] for number, start, end in windows] or [[EOS]], truncated)


class ShownWindow(NamedTuple):
    """The text of a window (a sentence, or a part of a long one), and its tokens with their positions in the text."""

    text: str
    pieces: list[Piece]


def show_document(text: str, tokenizer: Tokenizer, settings: ClassifySettings) -> list[ShownWindow]:
    """Divide a document into the windows that the model reads, as `encode_document` does, but keep their texts."""
    sentences = [tokenizer.normalize(sentence) for sentence in sentences_of(text, settings)]
    pieces = [tokenizer.pieces(sentence) for sentence in sentences]
    windows, _ = make_windows([len(found) for found in pieces], settings)
    shown = []
    for number, start, end in windows:
        found = pieces[number][start:end]
        first = found[0].start
        moved = [piece._replace(start=piece.start - first, end=piece.end - first) for piece in found]
        shown.append(ShownWindow(sentences[number][first : found[-1].end], moved))
    return shown


# Training data


@dataclass(frozen=True)
class DocumentFacts:
    """Statistics of the training documents, from which settings that the user did not give are chosen."""

    documents: int
    words: float
    """Mean number of words (separated by spaces) per document."""
    long: float
    """The 95th percentile of the number of words per document."""
    word_length: float
    """Mean number of characters per word."""
    labels: int
    rarest: float
    """Share of documents with the rarest label."""
    several: bool
    """Whether some documents have several labels or none."""

    @property
    def by_words(self) -> bool:
        """Whether the texts have spaces between words, guessed from the mean length of words: below 15 characters."""
        return self.word_length < 15

    @property
    def tokens_per_word(self) -> float:
        # Punctuation marks are tokens too. Text without spaces is divided into subwords.
        return 1.2 if self.by_words else (self.word_length + 1) / CHARACTERS_PER_TOKEN

    @property
    def tokens(self) -> float:
        """Estimated mean number of tokens per document."""
        return self.words * self.tokens_per_word


class TrainingDocuments:
    """The labeled documents for training, validation and test, read from files.

    If there are no files for validation or test, documents of the training files are held out for it. Documents with
    equal texts are in the same part.
    """

    def __init__(self, data: DataSettings, seed: int):
        found = read_train(data, _read, "a file of labeled documents", "documents")
        self.parts = hold_out(data, found, _read, lambda document: document.text, "documents", seed, _keep_rare_labels)
        where, labels = data.train[0].source, sorted({label for one in self.parts.train() for label in one.labels})
        if len(labels) < 2:
            only = f'every document is labeled "{labels[0]}"' if labels else "no document has a label"
            raise CorpusError(where, f"{only}; training needs at least two labels: add documents with another one")
        for part, documents in self.parts.held_out.items():
            unknown = sorted({label for document in documents for label in document.labels} - set(labels))
            if unknown:
                guess = nearest(unknown[0], labels)
                problem = f'the {part} data has the label "{unknown[0]}", but no training document has it'
                raise CorpusError(where, f"{problem}; add such documents, or correct the label{guess}")
        self.labels = tuple(labels)

    def __len__(self) -> int:
        return len(self.parts)

    def describe(self) -> str:
        return f"{self.parts.describe()}; {len(self.labels)} labels"

    @cached_property
    def facts(self) -> DocumentFacts:
        words, characters, counts = [], 0, Counter[str]()
        for document in self.parts.train():
            found = plain(document.text).split()
            words.append(len(found))
            characters += sum(map(len, found))
            counts.update(document.labels)
        words.sort()
        total = max(sum(words), 1)
        return DocumentFacts(
            documents=len(words),
            words=total / len(words),
            long=words[len(words) * 19 // 20],
            word_length=characters / total,
            labels=len(self.labels),
            rarest=min(counts[label] for label in self.labels) / len(words),
            several=any(len(document.labels) != 1 for document in self.parts.train()),
        )


def _read(corpus: Corpus) -> list[LabeledDocument]:
    documents = [document for document in read_documents(corpus) if document.text.strip()]
    if not documents:
        raise CorpusError(corpus.source, "no document here has any text; give a file with documents that are not empty")
    return documents


def _keep_rare_labels(documents: list[LabeledDocument], parts: bytes) -> bytes:
    """Move held-out documents to the training part if one of their labels is in no training document.

    `parts` and the returned bytes have the part of each document: 0 training, 1 validation, 2 test.
    """
    known = {label for document, part in zip(documents, parts, strict=True) if not part for label in document.labels}
    return bytes(part if known.issuperset(one.labels) else 0 for one, part in zip(documents, parts, strict=True))


@dataclass(frozen=True)
class PreparedDocuments(PreparedData[DocumentStore, LabeledDocument]):
    labels: tuple[str, ...]


def write_store(run: Run, documents: TrainingDocuments, log: Log) -> None:
    """Encode the training documents, and write them and the held-out documents into the folder store/ of a run."""
    log(f"encoding {len(documents):,} documents")
    settings: ClassifySettings = run.recipe.task
    tokenizer = run.tokenizers[0]
    number = {label: place for place, label in enumerate(run.labels)}
    encoded = [encode_document(document.text, tokenizer, settings) for document in documents.parts.train()]
    if cut := sum(one.truncated_tokens > 0 for one in encoded):
        lost = sum(one.truncated_tokens for one in encoded)
        share = lost / (lost + sum(len(sentence) for one in encoded for sentence in one.sentences))
        log(f"{cut:,} documents are longer than {settings.max_tokens} tokens; {share:.1%} of all tokens are left out")
    numbered = ([number[label] for label in document.labels] for document in documents.parts.train())
    rows = zip((one.sentences for one in encoded), numbered, strict=True)
    parts = store_parts((len(found), weight) for found, weight in documents.parts.corpora)
    held_out = {part: (one._asdict() for one in found) for part, found in documents.parts.held_out.items()}
    with new_store(run, held_out) as folder:
        write_documents(folder / "train", rows, parts, tokenizer.size)
