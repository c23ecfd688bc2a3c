"""Labelled documents: reading them from TSV, CSV and JSON lines, encoding them as sentences, and storing them."""

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
from regard.tasks.classify import ClassifySettings
from regard.tasks.dataset import Log, hold_out, new_store, read_train, store_parts
from regard.text.tokenizer import EOS, Piece, Tokenizer
from regard.text.words import split_sentences
from regard.training.plan import CHARACTERS_PER_TOKEN

LABEL_COLUMNS = ("label", "labels", "category")
LONG_WORD = 15.0
"""Mean number of characters between spaces. Languages without spaces have many more."""
FORMATS = ".tsv (label, tab, text), .jsonl (label and text), .csv (with a header), also .gz .zst"

# A tag that ends a line of the shown text, and any tag. "<3" and "a < b" are not tags.
_BREAK = re.compile(r"<(?:br|/?p|/?div|/?li|/?tr|/?h[1-6])\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_TAG_OR_COMMENT = re.compile(rf"{_TAG.pattern}|<!--.*?-->", re.DOTALL)


class LabelledDocument(NamedTuple):
    """A text and its labels."""

    labels: tuple[str, ...]
    text: str


# Files


def read_documents(corpus: Corpus) -> Iterator[LabelledDocument]:
    if not corpus.source:
        raise CorpusError("--source", "no file given")
    if corpus.target:
        raise CorpusError(corpus.target, "documents and their labels are in one file; leave out --target")
    path = Path(corpus.source)
    suffix = split_suffix(path)[0]
    if suffix not in (".tsv", ".csv", ".jsonl"):
        raise CorpusError(path, f"not a file of labelled documents; they come as {FORMATS}")
    return _read_jsonl(path) if suffix == ".jsonl" else _read_table(path)


def _read_table(path: Path) -> Iterator[LabelledDocument]:
    """Label and text. In a TSV file without a header, the text may contain tabs."""
    for number, (label, text) in read_table(path, ("label", "text"), (LABEL_COLUMNS, ("text",)), rest=True):
        if not (name := label.strip()):
            raise CorpusError(path, "no label in this row", line=number)
        yield LabelledDocument((name,), text)


def _read_jsonl(path: Path) -> Iterator[LabelledDocument]:
    """Objects with "text" and "label", which may be a list."""
    form = 'a line is an object with "label" and "text"'
    for number, record in read_objects(path, form):
        if not isinstance(record.get("text"), str):
            raise CorpusError(path, f'no "text" here; {form}', line=number)
        found = [record[key] for key in LABEL_COLUMNS if key in record]
        if not found:
            raise CorpusError(path, f'no "label" here; {form}', line=number)
        labels: dict[str, None] = {}  # without repetitions
        for value in found[0] if isinstance(found[0], list) else [found[0]]:
            label = json.dumps(value) if isinstance(value, int | float) else value  # it may be a number, true or false
            if not isinstance(label, str) or not label.strip():
                raise CorpusError(path, f"{json.dumps(value)} is not a label; give text or a number", line=number)
            labels[label.strip()] = None
        yield LabelledDocument(tuple(labels), record["text"])


# Text


def plain(text: str) -> str:
    """A text without markup: tags that end a line become line ends, others are removed, entities are resolved."""
    if "<" in text:
        text = _BREAK.sub("\n", text)
        # No comment ends after this place. Searching for the end of each "<!--" would take quadratic time.
        end = text.rfind("-->") + len("-->") if "-->" in text else 0
        text = _TAG_OR_COMMENT.sub("", text[:end]) + _TAG.sub("", text[end:])
    return html.unescape(text) if "&" in text else text


def sentences_of(text: str, settings: ClassifySettings) -> list[str]:
    """The sentences of a document; a line end also ends a sentence.

    A single word is joined with the next sentence: it is probably an abbreviation before a name ("Dr. Jones").
    """
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
"""Number of a sentence, and the start and end of some of its tokens; a model reads them as one sentence."""


def arrange(lengths: Sequence[int], settings: ClassifySettings) -> tuple[list[Window], int]:
    """The windows that are read of sentences of these lengths, and the number of tokens that are left out.

    A sentence that is too long is read as several windows of about equal length. If the document is too long, windows
    are kept alternately from the start and from the end, or only from the start.
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
    """A document as a model reads it."""

    sentences: list[list[int]]
    """Token ids; a document without text is one sentence with only EOS."""
    truncated_tokens: int
    """Tokens that were left out because the document is too long."""


def encode_document(text: str, tokenizer: Tokenizer, settings: ClassifySettings) -> EncodedDocument:
    """The sentences of a document as token ids."""
    encoded = tokenizer.encode_many(sentences_of(text, settings))
    windows, truncated = arrange([len(ids) for ids in encoded], settings)
    return EncodedDocument([encoded[number][start:end] for number, start, end in windows] or [[EOS]], truncated)


class ShownWindow(NamedTuple):
    """A window that was read: its text, and the tokens with their places in it."""

    text: str
    pieces: list[Piece]


def show_document(text: str, tokenizer: Tokenizer, settings: ClassifySettings) -> list[ShownWindow]:
    """The windows that `encode_document` encodes, as text."""
    sentences = [tokenizer.normalize(sentence) for sentence in sentences_of(text, settings)]
    pieces = [tokenizer.pieces(sentence) for sentence in sentences]
    windows, _ = arrange([len(found) for found in pieces], settings)
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
    """What the plan knows of the training data."""

    documents: int
    words: float
    """Mean number of words per document, separated by spaces."""
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
        """Mean number of tokens per document."""
        return self.words * self.tokens_per_word


class TrainingDocuments:
    """The labelled documents of all parts. Documents with the same text are never in two parts."""

    def __init__(self, data: DataSettings, seed: int):
        found = read_train(data, _read, "a file of labelled documents", "documents")
        self.parts = hold_out(data, found, _read, lambda document: document.text, "documents", seed, _keep_rare_labels)
        where, labels = data.train[0].source, sorted({label for one in self.parts.train() for label in one.labels})
        if len(labels) < 2:
            only = f'every document is labelled "{labels[0]}"' if labels else "no document has a label"
            raise CorpusError(where, f"{only}; there must be at least two labels to tell apart")
        for part, documents in self.parts.held_out.items():
            unknown = sorted({label for document in documents for label in document.labels} - set(labels))
            if unknown:
                guess = nearest(unknown[0], labels)
                raise CorpusError(where, f'no training document has the label "{unknown[0]}" of the {part} data{guess}')
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
            long=words[min(len(words) * 19 // 20, len(words) - 1)],
            word_length=characters / total,
            labels=len(self.labels),
            rarest=min(counts[label] for label in self.labels) / len(words),
            several=any(len(document.labels) != 1 for document in self.parts.train()),
        )


def _read(corpus: Corpus) -> list[LabelledDocument]:
    documents = [document for document in read_documents(corpus) if document.text.strip()]
    if not documents:
        raise CorpusError(corpus.source, "no document here has any text")
    return documents


def _keep_rare_labels(documents: list[LabelledDocument], parts: bytes) -> bytes:
    """Keep documents for training whose label no other training document would have."""
    learnt = {label for document, part in zip(documents, parts, strict=True) if not part for label in document.labels}
    return bytes(part if learnt.issuperset(one.labels) else 0 for one, part in zip(documents, parts, strict=True))


@dataclass(frozen=True)
class PreparedDocuments:
    """Everything that training reads."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: DocumentStore
    valid: list[LabelledDocument]
    test: list[LabelledDocument]


def write_store(run: Run, documents: TrainingDocuments, log: Log) -> None:
    """Encode the documents with the vocabulary and the labels of a run, and write them into it."""
    log(f"encoding {len(documents):,} documents")
    settings: ClassifySettings = run.recipe.task
    tokenizer = run.tokenizers[0]
    number = {label: place for place, label in enumerate(run.labels)}
    encoded = [encode_document(document.text, tokenizer, settings) for document in documents.parts.train()]
    cut = sum(one.truncated_tokens > 0 for one in encoded)
    if cut:
        lost = sum(one.truncated_tokens for one in encoded)
        share = lost / (lost + sum(len(sentence) for one in encoded for sentence in one.sentences))
        log(f"{cut:,} documents are longer than {settings.max_tokens} tokens; {share:.1%} of all tokens is left out")
    numbered = ([number[label] for label in document.labels] for document in documents.parts.train())
    rows = zip((one.sentences for one in encoded), numbered, strict=True)
    parts = store_parts((len(found), weight) for found, weight in documents.parts.corpora)
    held_out = {part: (one._asdict() for one in found) for part, found in documents.parts.held_out.items()}
    with new_store(run, held_out) as folder:
        write_documents(folder / "train", rows, parts, tokenizer.size)
