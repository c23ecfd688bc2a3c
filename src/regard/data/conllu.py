"""Dependency trees from files in the CoNLL-U format of Universal Dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from regard.errors import CorpusError
from regard.files import read_lines
from regard.text.tokenizer import normalize

FIELDS = 10
ID, FORM, HEAD, RELATION, MISC = 0, 1, 6, 7, 9


class DependencyArc(NamedTuple):
    """A relation, e.g. "nsubj", from a word to its head; both are indices of words of the sentence."""

    dependent: int
    head: int
    relation: str


@dataclass(frozen=True)
class Parse:
    """A sentence and its dependency arcs."""

    text: str
    spans: tuple[tuple[int, int], ...]
    """Start and end of each word in the text. Words that are written as one ("du", "didn't") have the same span."""
    arcs: tuple[DependencyArc, ...]
    """Without the arc of the root."""


class _Row(NamedTuple):
    line: int
    fields: list[str]


def read_conllu(path: str | Path) -> Iterator[Parse]:
    """The sentences of a file, in order. Their texts are joined from their words and normalised as for tokenizers."""
    numbered = (_Row(number, line.split("\t")) for number, line in enumerate(read_lines(path), 1))
    for is_sentence, rows in groupby(numbered, key=lambda row: bool(row.fields[0].strip())):
        words = [row for row in rows if not row.fields[0].startswith("#")] if is_sentence else []
        if words:
            yield _parse(words, path)


def _parse(rows: list[_Row], path: str | Path) -> Parse:
    text, glued = "", True
    together, covered_until = (0, 0), 0
    spans: list[tuple[int, int]] = []
    places: dict[str, int] = {}
    arcs: list[tuple[int, str, str, str]] = []
    for line, fields in rows:
        if len(fields) != FIELDS:
            raise CorpusError(path, f"{len(fields)} columns between tabs, not the {FIELDS} of CoNLL-U", line=line)
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
            raise CorpusError(path, f'the head "{head}" is not a word of the sentence', line=line)
    return Parse(text, tuple(spans), tuple(found))


def _whole(text: str, path: str | Path, line: int) -> int:
    if not text.isdecimal():
        raise CorpusError(path, f'"{text}" is not the number of a word; the first column counts the words', line=line)
    return int(text)
