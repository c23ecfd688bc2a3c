"""From files of labelled documents to what training reads: held-out parts, vocabulary, labels, token ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.config import Corpus, Data, Recipe
from regard.data.document_store import DocumentStore, open_documents, write_documents
from regard.data.labelled import Document, encode_document, plain, read_documents, sentences_of
from regard.data.records import read_kept
from regard.data.store import Part
from regard.data.tokenizer import Tokenizer, train_tokenizer
from regard.durable import write_atomically
from regard.errors import CorpusError, SettingsError, nearest
from regard.run import Run
from regard.tasks.holding_out import deal, split_texts
from regard.tasks.kinds import Tell
from regard.training.document_plan import Collection

FEWEST_DOCUMENTS = 20


@dataclass(frozen=True)
class PreparedDocuments:
    """Everything that training reads."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: DocumentStore
    valid: list[Document]
    test: list[Document]


class TrainingDocuments:
    """The labelled documents of all parts. Documents with the same text are never in two of them."""

    def __init__(self, data: Data, seed: int):
        if not data.train:
            raise SettingsError("nothing to train on: give a file of labelled documents, or [[data.train]] in a recipe")
        read = [_read(corpus) for corpus in data.train]
        where, total = data.train[0].source, sum(map(len, read))
        if total < FEWEST_DOCUMENTS:
            raise CorpusError(where, f"{total} documents are too few to train on; give at least {FEWEST_DOCUMENTS}")
        self.held_out = {
            part: [document for corpus in getattr(data, part) for document in _read(corpus)]
            for part in ("valid", "test")
        }
        parts = _split([document for corpus in read for document in corpus], data, seed)
        self.corpora: list[tuple[list[Document], float]] = []
        """The training documents of each file, with its weight."""
        for corpus, dealt in zip(data.train, deal(read, parts), strict=True):
            self.corpora.append((dealt["train"], corpus.weight))
            for name, documents in self.held_out.items():
                documents += dealt[name]
        self.labels = _labels(self.train(), self.held_out, where)

    def __len__(self) -> int:
        return sum(len(documents) for documents, _ in self.corpora)

    def train(self) -> Iterator[Document]:
        """All training documents."""
        return (document for documents, _ in self.corpora for document in documents)

    def describe(self) -> str:
        """How the documents are shared out, for people."""
        valid, test = (len(self.held_out[part]) for part in ("valid", "test"))
        shared = f"{len(self):,} documents to train on, {valid:,} for validation, {test:,} for the test"
        return f"{shared}; {len(self.labels)} labels"

    @cached_property
    def collection(self) -> Collection:
        """What the plan must know."""
        words, characters, counts = [], 0, Counter[str]()
        several = False
        for document in self.train():
            found = plain(document.text).split()
            words.append(len(found))
            characters += sum(map(len, found))
            counts.update(document.labels)
            several = several or len(document.labels) != 1
        words.sort()
        total = max(sum(words), 1)
        return Collection(
            documents=len(words),
            words=total / len(words),
            long=words[min(len(words) * 19 // 20, len(words) - 1)],
            word_length=characters / total,
            labels=len(self.labels),
            rarest=min(counts[label] for label in self.labels) / len(words),
            several=several,
        )


def prepare_documents(
    run: Run, recipe: Recipe, documents: TrainingDocuments, tell: Tell, base: Run | None = None
) -> PreparedDocuments:
    """Make vocabulary and labels, or take those of `base`; encode; write everything into the run."""
    labels = base.labels if base else documents.labels
    _check_labels(documents, labels, recipe)
    run.write_labels(labels)
    if base:
        tokenizer = base.tokenizers[0]
    else:
        tell(f"learning a vocabulary of {recipe.tokenizer.size:,} tokens ({recipe.tokenizer.kind})")
        texts = (line for one in documents.train() for line in sentences_of(one.text, recipe.classify))
        tokenizer = train_tokenizer(texts, recipe.tokenizer, recipe.train.seed)
    run.write_tokenizers(tokenizer, tokenizer)
    return _build(run, recipe, documents, tokenizer, labels, tell)


def reopen_documents(run: Run, tell: Tell) -> PreparedDocuments:
    """What `prepare_documents` made, for going on; made again from the files where a finished run has put it away."""
    folder = run.folder / "store"
    tokenizer = run.tokenizers[0]
    if not folder.is_dir():
        documents = TrainingDocuments(run.recipe.data, run.recipe.train.seed)
        return _build(run, run.recipe, documents, tokenizer, run.labels, tell)
    valid, test = (_read_kept(folder / f"{part}.jsonl") for part in ("valid", "test"))
    return PreparedDocuments(tokenizer, run.labels, open_documents(folder / "train"), valid, test)


def _build(
    run: Run, recipe: Recipe, documents: TrainingDocuments, tokenizer: Tokenizer, labels: Sequence[str], tell: Tell
) -> PreparedDocuments:
    """Encode, and write the store."""
    tell(f"encoding {len(documents):,} documents")
    number = {label: place for place, label in enumerate(labels)}
    encoded = [encode_document(document.text, tokenizer, recipe.classify) for document in documents.train()]
    cut = sum(one.left_out > 0 for one in encoded)
    if cut:
        left_out = sum(one.left_out for one in encoded)
        share = left_out / (left_out + sum(len(sentence) for one in encoded for sentence in one.sentences))
        tell(f"{cut:,} documents are longer than {recipe.classify.max_tokens} tokens; {share:.1%} of all is left out")
    parts, end = [], 0
    for found, weight in documents.corpora:
        end += len(found)
        parts.append(Part(end, weight))
    numbered = [[number[label] for label in document.labels] for document in documents.train()]
    sentences = (one.sentences for one in encoded)
    with run.new_store() as folder:
        write_documents(folder / "train", zip(sentences, numbered, strict=True), parts, tokenizer.size)
        for part in ("valid", "test"):
            write_kept(folder / f"{part}.jsonl", documents.held_out[part])
    store = open_documents(run.folder / "store" / "train")
    return PreparedDocuments(tokenizer, tuple(labels), store, documents.held_out["valid"], documents.held_out["test"])


def as_record(document: Document) -> dict[str, Any]:
    """A document as it is stored in JSON lines."""
    return {"labels": document.labels, "text": document.text}


def write_kept(path: Path, documents: Sequence[Document]) -> None:
    """Documents as JSON lines."""
    lines = (json.dumps(as_record(one), ensure_ascii=False) + "\n" for one in documents)
    write_atomically(path, "".join(lines).encode())


def _read_kept(path: Path) -> list[Document]:
    """What `write_kept` wrote."""
    return [Document(tuple(kept["labels"]), kept["text"]) for kept in read_kept(path, "held-out documents")]


def _read(corpus: Corpus) -> list[Document]:
    documents = [document for document in read_documents(corpus) if document.text.strip()]
    if not documents:
        raise CorpusError(corpus.source, "no document here has any text")
    return documents


def _split(documents: list[Document], data: Data, seed: int) -> bytes:
    """The number in `PARTS` of each document. One whose label no training document would have stays with them."""
    parts = split_texts([document.text for document in documents], data, seed)
    learnt = {label for document, part in zip(documents, parts, strict=True) if not part for label in document.labels}
    return bytes(part if learnt.issuperset(one.labels) else 0 for one, part in zip(documents, parts, strict=True))


def _labels(train: Iterator[Document], held_out: dict[str, list[Document]], where: str) -> tuple[str, ...]:
    """The labels that can be learnt, sorted; those that only held-out documents have are an error."""
    labels = sorted({label for document in train for label in document.labels})
    if len(labels) < 2:
        only = f'every document is labelled "{labels[0]}"' if labels else "no document has a label"
        raise CorpusError(where, f"{only}; there must be at least two labels to tell apart")
    for part, documents in held_out.items():
        unknown = sorted({label for document in documents for label in document.labels} - set(labels))
        if unknown:
            guess = nearest(unknown[0], labels)
            raise CorpusError(where, f'no training document has the label "{unknown[0]}" of the {part} data{guess}')
    return tuple(labels)


def _check_labels(documents: TrainingDocuments, labels: Sequence[str], recipe: Recipe) -> None:
    for document in documents.train():
        unknown = set(document.labels) - set(labels)
        if unknown:
            known = ", ".join(labels[:8])
            raise SettingsError(f'the label "{min(unknown)}" is unknown to the run that this one starts from ({known})')
        if len(document.labels) != 1 and not recipe.classify.several:
            raise SettingsError(
                f"a document has {len(document.labels)} labels; classify.several = true lets it have any number"
            )
