"""Readers of TSV, CSV, JSON lines and Parquet (rows with their line numbers), and of CoNLL-U (dependency trees).

The readers of tables return the cells of the wanted columns, in the wanted order; other columns are ignored. A CSV file
must have a header with the names of its columns, a TSV file may have one. Letter case in these names is ignored.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import CorpusError, RunError
from regard.files import opened, read_lines, require, split_suffix
from regard.text.tokenizer import normalize

Find = Callable[[list[str]], Sequence[int] | None]
"""Takes the cells of the first row, in lower case. Returns the indices of the wanted columns; None: not a header."""


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def by_name(*columns: Sequence[str]) -> Find:
    """Make the function `find` for `read_tsv` and `read_csv`, which finds the wanted columns by their names.

    Each of `columns` lists the possible names of one wanted column, in lower case. The function takes the cells of a
    header, in lower case, and returns the indices of the wanted columns, or None if one is missing.
    """

    def find(cells: list[str]) -> Sequence[int] | None:
        places = [next((cells.index(name) for name in names if name in cells), None) for names in columns]
        return None if None in places else [place for place in places if place is not None]

    return find


def read_tsv(
    path: Path, form: Sequence[str], find: Find, *, rest: bool = False, keep_empty: bool = False
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield line number and wanted cells of each row of a TSV file. Quotation marks are ordinary characters.

    `form`: names of the wanted columns, for error messages. `find`: takes the cells of the first row and returns the
    indices of the wanted columns, or None if the file has no header; then the first `len(form)` columns are wanted.
    `rest`: the last wanted column may contain tabs if it is also the last in the file.
    `keep_empty`: an empty line is a row of empty cells; otherwise lines without text are skipped.
    """
    wanted = f"a row is {', tab, '.join(form)}"
    pick, splits = itemgetter(*range(len(form))), len(form) - rest
    for number, line in enumerate(read_lines(path), 1):
        if number == 1 and (places := find([cell.strip().lower() for cell in line.split("\t")])) is not None:
            columns = line.count("\t") + 1
            ends_in_text = rest and places[-1] == columns - 1
            pick, splits = itemgetter(*places), columns - ends_in_text
            wanted = "the header names more columns"
            continue
        if not line or (not keep_empty and line.isspace()):
            if keep_empty:
                yield number, ("",) * len(form)
            continue
        try:
            row = pick(line.split("\t", splits))
        except IndexError:
            problem = "too few tabs" if "\t" in line else "no tab"
            raise CorpusError(path, f"{problem} in this row; {wanted}", line=number) from None
        yield number, row


def read_csv(path: Path, find: Find, missing: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield line number and wanted cells of each row of a CSV file with a header; cells may be quoted.

    `find`: takes the cells of the header and returns the indices of the wanted columns, or None if one is missing.
    `missing`: the names of the wanted columns, for the error message in this case.
    """
    csv.field_size_limit(sys.maxsize)  # a text may be long
    rows = csv.reader(f"{line}\n" for line in read_lines(path))
    try:
        header = [name.strip().lower() for name in next(rows, [])]
        places = find(header)
        if places is None:
            raise CorpusError(path, f"the first line must be a header with {missing}", line=1)
        pick = itemgetter(*places)
        for row in rows:
            if not any(row):
                continue
            if len(row) != len(header):
                problem = f"{len(row)} columns, but the header has {len(header)}; quote text that holds commas"
                raise CorpusError(path, problem, line=rows.line_num)
            yield rows.line_num, pick(row)
    except csv.Error as error:
        raise CorpusError(path, f"broken CSV ({error})", line=rows.line_num) from None


def read_table(
    path: Path, form: Sequence[str], columns: Sequence[Sequence[str]], *, rest: bool = False
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield line number and wanted cells of each row of a .tsv or .csv file.

    `columns`: the possible names of each wanted column, in lower case. `form` and `rest`: see `read_tsv`.
    """
    if split_suffix(path)[0] == ".csv":
        return read_csv(path, by_name(*columns), ", and ".join(" or ".join(names) for names in columns))
    return read_tsv(path, form, by_name(*columns), rest=rest)


# ---------------------------------------------------------------------------------------------------------------------
# JSON lines


def read_json_lines(path: Path, empty: Any = None) -> Iterator[tuple[int, Any]]:
    """Yield line number and JSON value of each line. `empty`: the value of a line without text; None: it is skipped."""
    for number, line in enumerate(read_lines(path), 1):
        if not line or line.isspace():
            if empty is not None:
                yield number, empty
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = "a number has too many digits"  # Python limits them, since converting takes quadratic time
            if isinstance(error, json.JSONDecodeError):
                reason = f"{error.msg}, column {error.colno}"
            elif isinstance(error, RecursionError):
                reason = "nested too deeply"
            raise CorpusError(path, f"broken JSON ({reason})", line=number) from None
        yield number, value


def read_objects(path: Path, form: str, empty: Any = None, *, text: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and JSON object of each line; a line that is not an object is an error.

    `text`: a key that must have a string in every object; "": none. `form`: description of a correct line, for the
    error message. `empty`: the object for a line without text; None: such lines are skipped.
    """
    for number, value in read_json_lines(path, empty):
        if not isinstance(value, dict):
            raise CorpusError(path, f"not a JSON object; {form}", line=number)
        if text and not isinstance(value.get(text), str):
            raise CorpusError(path, f'no "{text}" here; {form}', line=number)
        yield number, value


def read_kept(path: Path, what: str) -> list[Any]:
    """Read all values of a JSON lines file that training stored in a run folder; the file may be empty.

    `what`: a plural noun for the values, e.g. "pairs", for the error message if the file is missing.
    """
    if not path.is_file():
        raise RunError(f"{path}: the {what} are missing; train again with another --out")
    return [value for _, value in read_json_lines(path)] if path.stat().st_size else []


# ---------------------------------------------------------------------------------------------------------------------
# Parquet


def read_parquet(path: Path, choose: Callable[[list[str]], Sequence[str]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield row number and values of each row. `choose` gets the names of all columns and returns those to read."""
    arrow = require("pyarrow", path, "reading Parquet")
    parquet = require("pyarrow.parquet", path, "reading Parquet")
    number = 0
    with opened(path) as file:
        try:
            table = parquet.ParquetFile(file)
            chosen = list(choose(table.schema_arrow.names))
            for batch in table.iter_batches(batch_size=4096, columns=chosen):
                rows = batch.to_pylist()
                yield from enumerate(rows, number + 1)
                number += len(rows)
        except (arrow.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise CorpusError(path, f"not a Parquet file, or a damaged one ({reason})") from None
    if not number:
        raise CorpusError(path, "the file has no rows; check that it is the right file")


# ---------------------------------------------------------------------------------------------------------------------
# Rows of any of these formats, as dictionaries

ROW_FORMATS = ".tsv, .csv, .jsonl or .parquet, also .gz .zst"


def read_rows(path: Path, key: Sequence[str], form: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and cells of each row of a TSV, CSV, JSON lines or Parquet file, by column in lower case.

    `key`: the possible names of a column that every file must have. `form`: the columns of a TSV file without a header.
    """
    suffix, columns = split_suffix(path)[0], list(form)

    def find(header: list[str]) -> Sequence[int] | None:
        if not set(key) & set(header):
            return None
        columns[:] = header
        return range(len(header))

    def choose(header: list[str]) -> Sequence[str]:
        if not set(key) & {name.lower() for name in header}:
            raise CorpusError(path, f"there is no column {' or '.join(key)}; it has {', '.join(header)}")
        return header

    if suffix not in (".tsv", ".csv", ".jsonl", ".parquet"):
        raise CorpusError(path, f"rows cannot be read from this format; use {ROW_FORMATS}")
    if suffix in (".jsonl", ".parquet"):
        wanted = f'a line is an object with "{key[0]}"'
        for number, row in read_parquet(path, choose) if suffix == ".parquet" else read_objects(path, wanted):
            cells = {name.lower(): value for name, value in row.items()}
            if not set(key) & cells.keys():
                raise CorpusError(path, f'no "{key[0]}" here; {wanted}', line=number)
            yield number, cells
        return
    rows = read_csv(path, find, " or ".join(key)) if suffix == ".csv" else read_tsv(path, form, find)
    for number, values in rows:
        yield number, dict(zip(columns, values if len(columns) > 1 else (values,), strict=False))


# ---------------------------------------------------------------------------------------------------------------------
# CoNLL-U, the format of Universal Dependencies

FIELDS = 10
ID, FORM, HEAD, RELATION, MISC = 0, 1, 6, 7, 9


class DependencyArc(NamedTuple):
    """A dependency between two words: `relation` is e.g. "nsubj", `dependent` and `head` are word indices, from 0."""

    dependent: int
    head: int
    relation: str


@dataclass(frozen=True)
class Parse:
    """A sentence, the character spans of its words, and its dependency arcs."""

    text: str
    spans: tuple[tuple[int, int], ...]
    """Start and end of each word in the text. Words that are written as one ("du": de, le) have the same span."""
    arcs: tuple[DependencyArc, ...]
    """All arcs, except for the root, which has no head."""


def read_conllu(path: str | Path) -> Iterator[Parse]:
    """Read the sentences of a CoNLL-U file. The text of a sentence is joined from its normalized words."""
    return (_parse_sentence(rows, path) for rows in read_conllu_rows(path))


def read_conllu_rows(path: str | Path) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield the rows of each sentence of a CoNLL-U file, without comments. A row is a line number and 10 columns."""
    rows = ((number, line.split("\t")) for number, line in enumerate(read_lines(path), 1))
    for is_sentence, group in groupby(rows, key=lambda row: bool(row[1][0].strip())):
        words = [(line, fields) for line, fields in group if not fields[0].startswith("#")] if is_sentence else []
        for line, fields in words:
            if len(fields) != FIELDS:
                raise CorpusError(path, f"{len(fields)} columns between tabs, but CoNLL-U has {FIELDS}", line=line)
        if words:
            yield words


def _parse_sentence(rows: list[tuple[int, list[str]]], path: str | Path) -> Parse:
    text, glued = "", True
    together, covered_until = (0, 0), 0
    spans: list[tuple[int, int]] = []
    places: dict[str, int] = {}
    arcs: list[tuple[int, str, str, str]] = []
    for line, fields in rows:
        if "." in fields[ID]:  # an empty node: a word that is not in the text
            continue
        first, _, last = fields[ID].partition("-")
        number = _whole(first, path, line)
        if number > covered_until:  # not part of a multiword token
            start = len(text) + (not glued)
            text = f"{text}{'' if glued else ' '}{normalize(fields[FORM])}"
            together, covered_until = (start, len(text)), _whole(last or first, path, line)
            glued = "SpaceAfter=No" in fields[MISC].split("|")
        if not last:
            places[first] = len(spans)
            spans.append(together)
            arcs.append((line, first, fields[HEAD], fields[RELATION]))
    found = []
    for line, dependent, head, relation in arcs:
        if head in places:
            found.append(DependencyArc(places[dependent], places[head], relation.partition(":")[0]))
        elif head != "0":
            raise CorpusError(path, f'the head "{head}" is not 0 or a word number of the sentence', line=line)
    return Parse(text, tuple(spans), tuple(found))


def _whole(text: str, path: str | Path, line: int) -> int:
    if not text.isdecimal():
        raise CorpusError(path, f'"{text}" is not a word number; the first column must hold word numbers', line=line)
    return int(text)
