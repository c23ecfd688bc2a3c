"""Documents with labels: TSV, CSV and JSON lines as a stream, and a document's text as sentences of tokens."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import Classify, Corpus
from regard.data.files import split_suffix
from regard.data.records import read_objects, read_table
from regard.data.sentences import split_sentences
from regard.data.tokenizer import EOS, Piece, Tokenizer
from regard.errors import CorpusError

LABEL_COLUMNS = ("label", "labels", "category")
FORMATS = ".tsv (label, tab, text), .jsonl (label and text), .csv (with a header), also .gz .zst"

# A tag that ends a line of text where it is shown, and any tag. "<3" and "a < b" are none.
_BREAK = re.compile(r"<(?:br|/?p|/?div|/?li|/?tr|/?h[1-6])\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_TAG_OR_COMMENT = re.compile(rf"{_TAG.pattern}|<!--.*?-->", re.DOTALL)


class Document(NamedTuple):
    """A text and what it is labelled as."""

    labels: tuple[str, ...]
    text: str


# ---------------------------------------------------------------------------------------------------------------------
# Files


def read_documents(corpus: Corpus) -> Iterator[Document]:
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


def _read_table(path: Path) -> Iterator[Document]:
    """Label and text. In a TSV file without a header, the text may have tabs in it."""
    for number, (label, text) in read_table(path, ("label", "text"), (LABEL_COLUMNS, ("text",)), rest=True):
        if not (name := label.strip()):
            raise CorpusError(path, "no label in this row", line=number)
        yield Document((name,), text)


def _read_jsonl(path: Path) -> Iterator[Document]:
    """Objects with "text" and "label", which may be a list."""
    form = 'a line is an object with "label" and "text"'
    for number, record in read_objects(path, form):
        if not isinstance(record.get("text"), str):
            raise CorpusError(path, f'no "text" here; {form}', line=number)
        found = [record[key] for key in LABEL_COLUMNS if key in record]
        if not found:
            raise CorpusError(path, f'no "label" here; {form}', line=number)
        labels = found[0] if isinstance(found[0], list) else [found[0]]
        yield Document(tuple(dict.fromkeys(_label(label, path, number) for label in labels)), record["text"])


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


def sentences_of(text: str, settings: Classify) -> list[str]:
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


class Stretch(NamedTuple):
    """Tokens `start` to `end` of a sentence, by its number: what a model reads as one sentence."""

    sentence: int
    start: int
    end: int


def arrange(lengths: Sequence[int], settings: Classify) -> tuple[list[Stretch], int]:
    """What is read of sentences of these lengths, and how many tokens are left out.

    A sentence that is too long is read as several of about equal length.
    """
    stretches = [stretch for number, length in enumerate(lengths) for stretch in _cut(number, length, settings)]
    if sum(lengths) <= settings.max_tokens:
        return stretches, 0
    kept = _from_both_ends(stretches, settings.max_tokens, only_start=settings.leave_out == "end")
    return kept, sum(lengths) - sum(stretch.end - stretch.start for stretch in kept)


def _cut(number: int, length: int, settings: Classify) -> Iterator[Stretch]:
    parts = -(-length // settings.sentence_tokens)
    for part in range(parts):
        yield Stretch(number, part * length // parts, (part + 1) * length // parts)


def _from_both_ends(stretches: list[Stretch], room: int, *, only_start: bool) -> list[Stretch]:
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


class Encoded(NamedTuple):
    """A document as a model reads it."""

    sentences: list[list[int]]
    """Token ids; a document without text is one sentence with nothing but an end."""
    left_out: int
    """Tokens that it was too long by."""


def encode_document(text: str, tokenizer: Tokenizer, settings: Classify) -> Encoded:
    """A document's sentences as token ids."""
    encoded = tokenizer.encode_many(sentences_of(text, settings))
    stretches, left_out = arrange([len(ids) for ids in encoded], settings)
    return Encoded([encoded[number][start:end] for number, start, end in stretches] or [[EOS]], left_out)


class Shown(NamedTuple):
    """What was read as one sentence: its text, and the tokens with their places in it."""

    text: str
    pieces: list[Piece]


def show_document(text: str, tokenizer: Tokenizer, settings: Classify) -> list[Shown]:
    """The sentences that `encode_document` gives ids of, as text."""
    sentences = [tokenizer.normalize(sentence) for sentence in sentences_of(text, settings)]
    pieces = [tokenizer.pieces(sentence) for sentence in sentences]
    stretches, _ = arrange([len(found) for found in pieces], settings)
    return [_show(sentences[number], pieces[number][start:end]) for number, start, end in stretches]


def _show(sentence: str, pieces: list[Piece]) -> Shown:
    start, end = pieces[0].start, pieces[-1].end
    moved = [piece._replace(start=piece.start - start, end=piece.end - start) for piece in pieces]
    return Shown(sentence[start:end], moved)
