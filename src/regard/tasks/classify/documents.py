"""Documents as the input of a classifier: labeled documents from files, the plan, the token store, and the reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.config import Corpus, Recipe
from regard.data.batches import DocumentBatch, Index, make_documents
from regard.data.records import read_objects, read_table
from regard.data.store import open_documents, write_documents
from regard.errors import CorpusError, SettingsError
from regard.files import split_suffix
from regard.layers.hooks import AttentionTrace
from regard.models.base import ClassifierModel
from regard.run import Run
from regard.tasks import single_file
from regard.tasks.classify.document_report import report_sections as report_sections
from regard.tasks.classify.document_text import (
    EncodedDocument,
    encode_document,
    join_pieces,
    plain,
    sentences_of,
    shade,
    show_document,
)
from regard.tasks.classify.inputs import (
    LABEL_COLUMNS,
    Classification,
    LabeledExamples,
    PreparedExamples,
    Reader,
    keep_rare_labels,
    number_labels,
    read_labels,
)
from regard.tasks.classify.plan import make_document_plan
from regard.tasks.classify.settings import ClassifySettings
from regard.tasks.dataset import (
    HELD_OUT,
    Log,
    hold_out,
    learn_tokenizer,
    new_store,
    open_store_folder,
    read_held_out,
    read_train,
    store_parts,
)
from regard.tasks.training import Json, Tables, Workload
from regard.text.tokenizer import EOS, UNK, Tokenizer
from regard.text.words import ShadedSentence, ShadedWord
from regard.training.plan import CHARACTERS_PER_TOKEN, PlannedSetting

LONGEST_SHOWN = 2500
"""Largest number of characters of a document in the report."""
FORMATS = ".tsv (label, tab, text), .jsonl (label and text), .csv (with a header), also .gz .zst"


class LabeledDocument(NamedTuple):
    labels: tuple[str, ...]
    text: str

    @property
    def content(self) -> str:
        return self.text

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,)


# ---------------------------------------------------------------------------------------------------------------------
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
        yield LabeledDocument(read_labels(found[0], f"{path}:{number}"), record["text"])


def read_scored(corpus: Corpus, images: str, run: Run) -> list[LabeledDocument]:
    """The labeled documents of a file, on which `run` is scored."""
    if images:
        raise SettingsError(f"--images is for pictures, and {run.folder} reads texts; leave it out")
    return list(read_documents(corpus))


# ---------------------------------------------------------------------------------------------------------------------
# Use


@dataclass(frozen=True, kw_only=True)
class ClassifiedDocument(Classification):
    """A document with its labels and, if an explanation was requested, the weights of its sentences and words."""

    text: str
    truncated_tokens: int = 0
    """Number of tokens that were not read because the document is too long."""
    sentences: tuple[ShadedSentence, ...] | None = None
    """The sentences that were read, with their weights; None if `explain` was false."""

    @property
    def fits_report(self) -> bool:
        return len(self.text) <= LONGEST_SHOWN

    def as_dict(self) -> Json:
        made = {"text": self.text, **super().as_dict(), "truncated_tokens": self.truncated_tokens}
        if self.sentences is None:
            return made
        return made | {"sentences": [sentence.as_dict() for sentence in self.sentences]}

    def shares(self) -> list[tuple[ShadedWord, float]]:
        """The words of the document in order, each with its share (0 to 1) of the attention; [] without `explain`."""
        return [(word, one.weight * word.weight) for one in self.sentences or () for word in one.words]


class DocumentReader(Reader):
    """Reads texts: divides them into sentences and tokens."""

    unit, field = "documents", "q"

    def __init__(self, tokenizer: Tokenizer, recipe: Recipe):
        self.tokenizer, self.settings, self.window = tokenizer, recipe.task, recipe.model.document_window

    def encode(self, contents: Sequence[str]) -> list[EncodedDocument]:
        return [encode_document(text, self.tokenizer, self.settings) for text in contents]

    def length(self, encoded: EncodedDocument) -> int:
        return sum(map(len, encoded.sentences))

    def batch(self, encoded: Sequence[EncodedDocument]) -> DocumentBatch:
        return make_documents([one.sentences for one in encoded], self.tokenizer.pad, self.window)

    def weigh(self, model: ClassifierModel, tape: AttentionTrace, batch: DocumentBatch) -> list[list[float]]:
        """The attention weights of all tokens of each document, which sum to 1."""
        shares_BUS = model.shading(tape, batch).float().cpu()
        return [
            shares_US[mask_US].tolist() for shares_US, mask_US in zip(shares_BUS, batch.mask_BUS.cpu(), strict=True)
        ]

    def classification(self, content: str, encoded: EncodedDocument, weights: Any, **common: Any) -> ClassifiedDocument:
        sentences = None if weights is None else shade(self.shown(content), weights)
        return ClassifiedDocument(
            text=content, truncated_tokens=encoded.truncated_tokens, sentences=sentences, **common
        )

    def attributed(self, content: str, shares: Iterable[float]) -> list[ShadedWord]:
        """The words of a document that are read, each with the sum over its tokens."""
        return [word for sentence in join_pieces(self.shown(content), shares) for word in sentence]

    def shown(self, text: str) -> list[Any]:
        return show_document(text, self.tokenizer, self.settings)


def open_reader(run: Run) -> DocumentReader:
    return DocumentReader(run.tokenizers[0], run.recipe)


# ---------------------------------------------------------------------------------------------------------------------
# Training


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


class TrainingDocuments(LabeledExamples[LabeledDocument]):
    """The labeled documents for training, validation and test. Documents with equal texts are in the same part."""

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

    def plan(self, given: Tables) -> list[PlannedSetting]:
        return make_document_plan(self.facts, given)

    def sizes(self, recipe: Recipe) -> dict[str, int]:
        return {"vocabulary": recipe.tokenizer.vocab_size}

    def workload(self, recipe: Recipe) -> Workload:
        """As if all documents had mean length, and sentences 20 tokens."""
        tokens = round(min(self.facts.tokens, recipe.task.max_tokens))
        pairs = tokens * recipe.model.document_window
        amounts = {"document": 1, "sentence": max(tokens // 20, 1), "token": tokens, "pair": pairs}
        return Workload({unit: self.facts.documents * count for unit, count in amounts.items()}, tokens)

    def prepare(self, run: Run, log: Log, base: Run | None) -> None:
        recipe = run.recipe
        texts = (line for one in self.parts.train() for line in sentences_of(one.text, recipe.task))
        learn_tokenizer(run, recipe, texts, log, base, labels=len(run.labels))

    def write(self, run: Run, log: Log) -> None:
        log(f"encoding {len(self):,} documents")
        settings: ClassifySettings = run.recipe.task
        tokenizer = run.tokenizers[0]
        encoded = [encode_document(document.text, tokenizer, settings) for document in self.parts.train()]
        if cut := sum(one.truncated_tokens > 0 for one in encoded):
            lost = sum(one.truncated_tokens for one in encoded)
            share = lost / (lost + sum(len(sentence) for one in encoded for sentence in one.sentences))
            longer = f"{cut:,} documents are longer than {settings.max_tokens} tokens"
            log(f"{longer}; {share:.1%} of all tokens are left out")
        rows = zip((one.sentences for one in encoded), number_labels(run, self), strict=True)
        parts = store_parts((len(found), weight) for found, weight in self.parts.corpora)
        held_out = {part: (one._asdict() for one in found) for part, found in self.parts.held_out.items()}
        with new_store(run, held_out) as folder:
            write_documents(folder / "train", rows, parts, tokenizer.size)


def read_examples(recipe: Recipe) -> TrainingDocuments:
    data = recipe.data
    found = read_train(data, _read, "a file of labeled documents", "documents")
    seed = recipe.train.seed
    parts = hold_out(data, found, _read, lambda document: document.text, "documents", seed, keep_rare_labels)
    return TrainingDocuments(recipe, parts)


def _read(corpus: Corpus) -> list[LabeledDocument]:
    documents = [document for document in read_documents(corpus) if document.text.strip()]
    if not documents:
        raise CorpusError(corpus.source, "no document here has any text; give a file with documents that are not empty")
    return documents


class PreparedDocuments(PreparedExamples[LabeledDocument]):
    """The documents of a prepared run."""

    reader: DocumentReader

    def batch(self, index: Index, seed: Sequence[int] = (), strength: float = 0.0) -> DocumentBatch:
        """Documents with these indices; `strength` is a factor on `classify.word_dropout`."""
        sentences, labels = zip(*(self.train[int(place)] for place in index), strict=True)
        pad, window = self.reader.tokenizer.pad, self.reader.window
        batch = make_documents(sentences, pad, window, labels, len(self.labels), index)
        if hidden := self.reader.settings.word_dropout * strength:
            chance = np.random.Generator(np.random.PCG64(list(seed)))
            drawn_BUS = torch.from_numpy(chance.random(batch.ids_BUS.shape, np.float32)) < hidden
            batch.ids_BUS[drawn_BUS & batch.mask_BUS & (batch.ids_BUS != EOS)] = UNK
        return batch

    def card(self) -> Json:
        return {"vocabulary": self.reader.tokenizer.size, self.reader.unit: self.counts()}

    def records(self, examples: Sequence[LabeledDocument]) -> list[Json]:
        return [example._asdict() for example in examples]


def from_records(records: Sequence[Json]) -> list[LabeledDocument]:
    return [LabeledDocument(tuple(one["labels"]), one["text"]) for one in records]


def open_examples(run: Run, log: Log) -> PreparedDocuments:
    folder = open_store_folder(run, lambda: read_examples(run.recipe).write(run, log))
    valid, test = (from_records(read_held_out(folder, part, "documents")) for part in HELD_OUT)
    return PreparedDocuments(open_reader(run), open_documents(folder / "train"), valid, test, run.labels)
