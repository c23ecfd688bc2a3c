"""Files of labeled words: reads CoNLL columns, CoNLL-U and JSON lines; writes CoNLL columns.

A CoNLL file has one word per line with columns separated by tabs or spaces, and an empty line after each sentence. It
is the format of the CoNLL shared tasks on chunks (2000), names (2002, 2003) and others. The first column is the word;
the label is in the last column unless another one is given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import Corpus
from regard.data.records import FIELDS, read_conllu_rows, read_objects
from regard.errors import CorpusError
from regard.files import read_lines, split_suffix
from regard.tasks import single_file

FORMATS = ".conll .txt .bio .tsv (one word and its label per line), .conllu, .jsonl (tokens and tags), also .gz .zst"
FORM = 'a line is an object with "tokens" and "tags"'
COLUMNS = ("", ".conll", ".txt", ".bio", ".iob", ".iob2", ".tsv", ".dat", ".data")
"""Suffixes of files in columns."""
OF_WORDS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".jsonl")
"""Suffixes of files that are always read as words, never as plain text."""
LOOKED_AT = 100
"""Number of lines at the start of a file that `looks_like_columns` gets."""
_SEPARATORS = " \t\n\r"
_SEPARATOR_RUN = re.compile(f"[{_SEPARATORS}]+")
_COLUMN = re.compile(r"[^ \t]+")  # other spaces, such as a no-break space, belong to words


class TaggedSentence(NamedTuple):
    """The words of a sentence (`tokens`) and the label of each word (`tags`)."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]


def read_tagged(corpus: Corpus, column: int = 0) -> list[TaggedSentence]:
    """Read the labeled sentences of a file in one of `FORMATS`.

    `column` is the column of the labels, counted from 1; 0 is the last column, or UPOS in CoNLL-U. JSON lines
    ignore it.
    """
    path = single_file(corpus, "words and labels")
    suffix = split_suffix(path)[0]
    if suffix == ".jsonl":
        found = list(_read_jsonl(path))
    elif suffix == ".conllu":
        found = list(_read_conllu(path, column))
    elif suffix in COLUMNS:
        found = list(read_columns(read_lines(path), path, column))
    else:
        raise CorpusError(path, f"not a file of labeled words; the formats are {FORMATS}")
    if not found:
        raise CorpusError(corpus.source, f"no words found; the formats are {FORMATS}")
    return found


def read_columns(lines: Iterable[str], where: str | Path, column: int) -> Iterator[TaggedSentence]:
    """Yield the labeled sentences in the lines of a CoNLL file.

    The labels are in `column`, counted from 1; 0 is the last column. `where` names the file in error messages.
    """
    least = max(column, 2)
    for rows in _sentences(lines):
        for number, fields in rows:
            if len(fields) < least:
                problem = f"{len(fields)} column{'s' * (len(fields) > 1)} in this row, not at least {least}"
                place = f"in column {column}" if column else "last"
                raise CorpusError(where, f"{problem}; put the word first and its label {place}", line=number)
        tags = tuple(fields[column - 1] for _, fields in rows)  # column 0 gives the last one
        yield TaggedSentence(tuple(fields[0] for _, fields in rows), tags)


def read_words(path: str | Path) -> Iterator[tuple[str, ...]]:
    """Yield the words of each sentence of a .jsonl, .conllu or CoNLL file, without labels if it has any."""
    path = Path(path)
    suffix = split_suffix(path)[0]
    if suffix == ".jsonl":
        found = (_texts(record, "tokens", path, number) for number, record in read_objects(path, FORM))
        return (tokens for tokens in found if tokens)
    if suffix == ".conllu":
        return (sentence.tokens for sentence in _read_conllu(path))
    return words_of_lines(read_lines(path))


def words_of_lines(lines: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the words of each sentence in the lines of a CoNLL file: the first column of each line."""
    return (tuple(fields[0] for _, fields in rows) for rows in _sentences(lines))


def looks_like_columns(lines: Sequence[str]) -> bool:
    """Whether `lines`, the first lines of a file, look like a CoNLL file and not like text.

    True if at least one line and at most a third of the lines are empty, and there are at least three other lines, of
    which at least 90 % have the same number of columns, from 2 to 10.
    """
    counts = Counter(len(_COLUMN.findall(line)) for line in lines)
    empty = counts.pop(0, 0)
    if not 0 < empty <= counts.total() / 2 or counts.total() < 3:  # paragraphs have an empty line after each
        return False
    [(columns, rows)] = counts.most_common(1)
    return 2 <= columns <= FIELDS and rows >= 0.9 * counts.total()


def write_conll(sentences: Iterable[TaggedSentence]) -> Iterator[str]:
    """Yield the lines of a CoNLL file: for each word "WORD LABEL", and an empty line after each sentence."""
    for tokens, tags in sentences:
        for token, tag in zip(tokens, tags, strict=True):
            yield f"{_SEPARATOR_RUN.sub('_', token.strip(_SEPARATORS))} {tag}"
        yield ""


def _sentences(lines: Iterable[str]) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield, for each sentence, a list with the line number and the columns of each word.

    Comments and -DOCSTART- lines are left out.
    """
    numbered = ((number, _COLUMN.findall(line)) for number, line in enumerate(lines, 1))
    for has_words, group in groupby(numbered, key=lambda row: bool(row[1]) and row[1][0] != "-DOCSTART-"):
        rows = list(group) if has_words else []
        first = next((place for place, row in enumerate(rows) if not _is_comment(row[1], rows[-1][1])), len(rows))
        if rows[first:]:
            yield rows[first:]


def _is_comment(fields: list[str], last: list[str]) -> bool:
    """Whether a line at the start of a sentence is a comment, e.g. "# text = ...".

    A line that starts with "#" can also be a word: it is one if it has as many columns (`fields`) as the last line of
    the sentence (`last`), unless its third column is "=".
    """
    return fields[0].startswith("#") and (len(fields) != len(last) or fields[2:3] == ["="])


def _read_conllu(path: Path, column: int = 0) -> Iterator[TaggedSentence]:
    """Yield the labeled sentences of a CoNLL-U file. The labels are in `column`, counted from 1; 0 is UPOS.

    Words are syntactic words: a contraction such as "du" gives its parts "de" and "le"; empty nodes are left out.
    """
    column = column or 4  # UPOS, the universal part of speech
    if column > FIELDS:
        raise CorpusError(path, f"tag.column = {column}, but CoNLL-U has {FIELDS} columns; choose one of them, or 0")
    for rows in read_conllu_rows(path):
        words = [fields for _, fields in rows if fields[0].isdecimal()]
        if words:
            yield TaggedSentence(tuple(word[1] for word in words), tuple(word[column - 1] for word in words))


def _read_jsonl(path: Path) -> Iterator[TaggedSentence]:
    for number, record in read_objects(path, FORM):
        tokens, tags = (_texts(record, key, path, number) for key in ("tokens", "tags"))
        if len(tokens) != len(tags):
            problem = f"{len(tokens)} tokens, but {len(tags)} tags; give one tag for each token"
            raise CorpusError(path, problem, line=number)
        if tokens:
            yield TaggedSentence(tokens, tags)


def _texts(record: dict[str, Any], key: str, path: Path, number: int) -> tuple[str, ...]:
    values = record.get(key)
    if not isinstance(values, list) or not all(
        # A no-break space is a word, as in CoNLL files. The first test is faster, and nearly always enough.
        isinstance(value, str) and (value.strip() or value.strip(_SEPARATORS))
        for value in values
    ):
        raise CorpusError(path, f'"{key}" is not a list of non-empty texts; {FORM}', line=number)
    return tuple(values)
