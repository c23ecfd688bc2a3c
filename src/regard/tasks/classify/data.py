"""Documents with labels: TSV, CSV and JSON lines as a stream, and a document's text as sentences of tokens."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import Corpus, DataSettings, Recipe
from regard.data.records import read_kept, read_objects, read_table
from regard.data.split import deal, split_texts
from regard.data.store import DocumentStore, StorePart, open_documents, write_documents
from regard.errors import CorpusError, SettingsError, nearest
from regard.files import split_suffix, write_atomically
from regard.run import Run
from regard.tasks.classify import ClassifySettings
from regard.tasks.classify.plan import DocumentFacts
from regard.tasks.training import Log
from regard.text.tokenizer import EOS, Piece, Tokenizer, train_tokenizer
from regard.text.words import split_sentences

LABEL_COLUMNS = ("label", "labels", "category")
FORMATS = ".tsv (label, tab, text), .jsonl (label and text), .csv (with a header), also .gz .zst"

# A tag that ends a line of text where it is shown, and any tag. "<3" and "a < b" are none.
_BREAK = re.compile(r"<(?:br|/?p|/?div|/?li|/?tr|/?h[1-6])\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_TAG_OR_COMMENT = re.compile(rf"{_TAG.pattern}|<!--.*?-->", re.DOTALL)


class LabelledDocument(NamedTuple):
    """A text and what it is labelled as."""

    labels: tuple[str, ...]
    text: str


# ---------------------------------------------------------------------------------------------------------------------
# Files


def read_documents(corpus: Corpus) -> Iterator[LabelledDocument]:
    """Stream the documents of a file."""
    if not corpus.source:
        raise CorpusError("--source", "no file given")
    if corpus.target:
        raise CorpusError(corpus.target, "documents and their labels stand in one file; leave out --target")
    path = Path(corpus.source)
    suffix = split_suffix(path)[0]
    if suffix == ".jsonl":
        return _read_jsonl(path)
    if suffix in (".tsv", ".csv"):
        return _read_table(path)
    raise CorpusError(path, f"not a file of labelled documents; they come as {FORMATS}")


def _read_table(path: Path) -> Iterator[LabelledDocument]:
    """Label and text. In a TSV file without a header, the text may have tabs in it."""
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
        labels = found[0] if isinstance(found[0], list) else [found[0]]
        yield LabelledDocument(tuple(dict.fromkeys(_label(label, path, number) for label in labels)), record["text"])


def _label(value: Any, path: Path, number: int) -> str:
    """A label as text; numbers and truth values are labels too."""
    text = json.dumps(value) if isinstance(value, int | float) else value
    if not isinstance(text, str) or not text.strip():
        raise CorpusError(path, f"{json.dumps(value)} is no label; give text or a number", line=number)
    return text.strip()


# ---------------------------------------------------------------------------------------------------------------------
# Text


def plain(text: str) -> str:
    """A text without its markup: tags that end a line become line ends, others go, entities are resolved."""
    if "<" in text:
        text = _BREAK.sub("\n", text)
        # No comment ends after this place. Looking for its end from each "<!--" on would take quadratic time.
        end = text.rfind("-->") + len("-->") if "-->" in text else 0
        text = _TAG_OR_COMMENT.sub("", text[:end]) + _TAG.sub("", text[end:])
    return html.unescape(text) if "&" in text else text


def sentences_of(text: str, settings: ClassifySettings) -> list[str]:
    """The sentences of a document; a line end is the end of one."""
    text = plain(text) if settings.markup == "remove" else text
    return [sentence for line in text.splitlines() for sentence in _join_short(split_sentences(line))]


def _join_short(sentences: list[str]) -> list[str]:
    """A single word stays with what follows: most likely it is an abbreviation before a name ("Dr. Jones")."""
    joined: list[str] = []
    for sentence in sentences:
        if joined and " " not in joined[-1]:
            joined[-1] += f" {sentence}"
        else:
            joined.append(sentence)
    return joined


class Window(NamedTuple):
    """Tokens `start` to `end` of a sentence, by its number: what a model reads as one sentence."""

    sentence: int
    start: int
    end: int


def arrange(lengths: Sequence[int], settings: ClassifySettings) -> tuple[list[Window], int]:
    """What is read of sentences of these lengths, and how many tokens are left out.

    A sentence that is too long is read as several of about equal length.
    """
    stretches = [stretch for number, length in enumerate(lengths) for stretch in _cut(number, length, settings)]
    if sum(lengths) <= settings.max_tokens:
        return stretches, 0
    kept = _from_both_ends(stretches, settings.max_tokens, only_start=settings.truncate == "end")
    return kept, sum(lengths) - sum(stretch.end - stretch.start for stretch in kept)


def _cut(number: int, length: int, settings: ClassifySettings) -> Iterator[Window]:
    parts = -(-length // settings.sentence_tokens)
    for part in range(parts):
        yield Window(number, part * length // parts, (part + 1) * length // parts)


def _from_both_ends(stretches: list[Window], room: int, *, only_start: bool) -> list[Window]:
    """As many as there is room for, from the start and, in turns, from the end."""
    first, last = 0, len(stretches)
    head = tail = 0
    while first < last:
        from_start = only_start or head <= tail
        stretch = stretches[first if from_start else last - 1]
        size = stretch.end - stretch.start
        if head + tail + size > room:
            break
        if from_start:
            first, head = first + 1, head + size
        else:
            last, tail = last - 1, tail + size
    return stretches[:first] + stretches[last:]


class EncodedDocument(NamedTuple):
    """A document as a model reads it."""

    sentences: list[list[int]]
    """Token ids; a document without text is one sentence with nothing but an end."""
    left_out: int
    """Tokens that it was too long by."""


def encode_document(text: str, tokenizer: Tokenizer, settings: ClassifySettings) -> EncodedDocument:
    """A document's sentences as token ids."""
    encoded = tokenizer.encode_many(sentences_of(text, settings))
    stretches, left_out = arrange([len(ids) for ids in encoded], settings)
    return EncodedDocument([encoded[number][start:end] for number, start, end in stretches] or [[EOS]], left_out)


class ShownDocument(NamedTuple):
    """What was read as one sentence: its text, and the tokens with their places in it."""

    text: str
    pieces: list[Piece]


def show_document(text: str, tokenizer: Tokenizer, settings: ClassifySettings) -> list[ShownDocument]:
    """The sentences that `encode_document` gives ids of, as text."""
    sentences = [tokenizer.normalize(sentence) for sentence in sentences_of(text, settings)]
    pieces = [tokenizer.pieces(sentence) for sentence in sentences]
    stretches, _ = arrange([len(found) for found in pieces], settings)
    return [_show(sentences[number], pieces[number][start:end]) for number, start, end in stretches]


def _show(sentence: str, pieces: list[Piece]) -> ShownDocument:
    start, end = pieces[0].start, pieces[-1].end
    moved = [piece._replace(start=piece.start - start, end=piece.end - start) for piece in pieces]
    return ShownDocument(sentence[start:end], moved)


# From files of labelled documents to what training reads: held-out parts, vocabulary, labels, token ids.


FEWEST_DOCUMENTS = 20


@dataclass(frozen=True)
class PreparedDocuments:
    """Everything that training reads."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: DocumentStore
    valid: list[LabelledDocument]
    test: list[LabelledDocument]


class TrainingDocuments:
    """The labelled documents of all parts. Documents with the same text are never in two of them."""

    def __init__(self, data: DataSettings, seed: int):
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
        self.corpora: list[tuple[list[LabelledDocument], float]] = []
        """The training documents of each file, with its weight."""
        for corpus, dealt in zip(data.train, deal(read, parts), strict=True):
            self.corpora.append((dealt["train"], corpus.weight))
            for name, documents in self.held_out.items():
                documents += dealt[name]
        self.labels = _labels(self.train(), self.held_out, where)

    def __len__(self) -> int:
        return sum(len(documents) for documents, _ in self.corpora)

    def train(self) -> Iterator[LabelledDocument]:
        """All training documents."""
        return (document for documents, _ in self.corpora for document in documents)

    def describe(self) -> str:
        """How the documents are shared out, for people."""
        valid, test = (len(self.held_out[part]) for part in ("valid", "test"))
        shared = f"{len(self):,} documents to train on, {valid:,} for validation, {test:,} for the test"
        return f"{shared}; {len(self.labels)} labels"

    @cached_property
    def collection(self) -> DocumentFacts:
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
        return DocumentFacts(
            documents=len(words),
            words=total / len(words),
            long=words[min(len(words) * 19 // 20, len(words) - 1)],
            word_length=characters / total,
            labels=len(self.labels),
            rarest=min(counts[label] for label in self.labels) / len(words),
            several=several,
        )


def prepare_documents(
    run: Run, recipe: Recipe, documents: TrainingDocuments, log: Log, base: Run | None = None
) -> PreparedDocuments:
    """Make vocabulary and labels, or take those of `base`; encode; write everything into the run."""
    labels = base.labels if base else documents.labels
    _check_labels(documents, labels, recipe)
    run.write_labels(labels)
    if base:
        tokenizer = base.tokenizers[0]
    else:
        log(f"learning a vocabulary of {recipe.tokenizer.vocab_size:,} tokens ({recipe.tokenizer.kind})")
        texts = (line for one in documents.train() for line in sentences_of(one.text, recipe.task))
        tokenizer = train_tokenizer(texts, recipe.tokenizer, recipe.train.seed)
    run.write_tokenizers(tokenizer, tokenizer)
    return _build(run, recipe, documents, tokenizer, labels, log)


def reopen_documents(run: Run, log: Log) -> PreparedDocuments:
    """What `prepare_documents` made, for going on; made again from the files where a finished run has put it away."""
    folder = run.folder / "store"
    tokenizer = run.tokenizers[0]
    if not folder.is_dir():
        documents = TrainingDocuments(run.recipe.data, run.recipe.train.seed)
        return _build(run, run.recipe, documents, tokenizer, run.labels, log)
    valid, test = (_read_kept(folder / f"{part}.jsonl") for part in ("valid", "test"))
    return PreparedDocuments(tokenizer, run.labels, open_documents(folder / "train"), valid, test)


def _build(
    run: Run, recipe: Recipe, documents: TrainingDocuments, tokenizer: Tokenizer, labels: Sequence[str], log: Log
) -> PreparedDocuments:
    """Encode, and write the store."""
    log(f"encoding {len(documents):,} documents")
    number = {label: place for place, label in enumerate(labels)}
    encoded = [encode_document(document.text, tokenizer, recipe.task) for document in documents.train()]
    cut = sum(one.left_out > 0 for one in encoded)
    if cut:
        left_out = sum(one.left_out for one in encoded)
        share = left_out / (left_out + sum(len(sentence) for one in encoded for sentence in one.sentences))
        log(f"{cut:,} documents are longer than {recipe.task.max_tokens} tokens; {share:.1%} of all is left out")
    parts, end = [], 0
    for found, weight in documents.corpora:
        end += len(found)
        parts.append(StorePart(end, weight))
    numbered = [[number[label] for label in document.labels] for document in documents.train()]
    sentences = (one.sentences for one in encoded)
    with run.new_store() as folder:
        write_documents(folder / "train", zip(sentences, numbered, strict=True), parts, tokenizer.size)
        for part in ("valid", "test"):
            write_kept(folder / f"{part}.jsonl", documents.held_out[part])
    store = open_documents(run.folder / "store" / "train")
    return PreparedDocuments(tokenizer, tuple(labels), store, documents.held_out["valid"], documents.held_out["test"])


def as_record(document: LabelledDocument) -> dict[str, Any]:
    """A document as it is stored in JSON lines."""
    return {"labels": document.labels, "text": document.text}


def write_kept(path: Path, documents: Sequence[LabelledDocument]) -> None:
    """Documents as JSON lines."""
    lines = (json.dumps(as_record(one), ensure_ascii=False) + "\n" for one in documents)
    write_atomically(path, "".join(lines).encode())


def _read_kept(path: Path) -> list[LabelledDocument]:
    """What `write_kept` wrote."""
    return [LabelledDocument(tuple(kept["labels"]), kept["text"]) for kept in read_kept(path, "held-out documents")]


def _read(corpus: Corpus) -> list[LabelledDocument]:
    documents = [document for document in read_documents(corpus) if document.text.strip()]
    if not documents:
        raise CorpusError(corpus.source, "no document here has any text")
    return documents


def _split(documents: list[LabelledDocument], data: DataSettings, seed: int) -> bytes:
    """The number in `PARTS` of each document. One whose label no training document would have stays with them."""
    parts = split_texts([document.text for document in documents], data, seed)
    learnt = {label for document, part in zip(documents, parts, strict=True) if not part for label in document.labels}
    return bytes(part if learnt.issuperset(one.labels) else 0 for one, part in zip(documents, parts, strict=True))


def _labels(
    train: Iterator[LabelledDocument], held_out: dict[str, list[LabelledDocument]], where: str
) -> tuple[str, ...]:
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
        if len(document.labels) != 1 and not recipe.task.multi_label:
            raise SettingsError(
                f"a document has {len(document.labels)} labels; classify.multi_label = true lets it have any number"
            )
