"""Spans in labels of words, read and written: "B-NP I-NP O" is a noun phrase of two words.

One function reads all schemes: IOB1 (Ramshaw and Marcus 1995), BIO (IOB2) and BIOES. Malformed labels are read as by
conlleval of the CoNLL shared tasks: an I- without a B- starts a span. Labels of another form, e.g. parts of speech, are
plain: they mark no spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

OUTSIDE = "O"
Scheme = Literal["plain", "IOB1", "BIO", "BIOES"]
_LABEL = re.compile(r"(?P<prefix>[BIES])(?:-(?P<type>.+))?")


class Span(NamedTuple):
    """A unit of the words `start` to `end` (not included), and its type."""

    type: str
    start: int
    end: int


def find_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme of labels."""
    prefixes: set[str] = set()
    begun_by_i = begun_by_b = False
    for labels in sentences:
        before = _part(OUTSIDE)
        for label in labels:
            part = _part(label)
            if not part.prefix:
                return "plain"
            prefixes.add(part.prefix)
            if before.prefix == OUTSIDE or before.type != part.type:
                begun_by_i = begun_by_i or part.prefix == "I"
                begun_by_b = begun_by_b or part.prefix == "B"
            before = part
    if prefixes <= {OUTSIDE}:
        return "plain"
    if prefixes & {"E", "S"}:
        return "BIOES"
    return "IOB1" if begun_by_i and not begun_by_b else "BIO"


def find_spans(labels: Sequence[str]) -> list[Span]:
    """The spans that labels mark, in order. A label of no scheme ends a span and starts none."""
    found: list[Span] = []
    start, before = -1, _part(OUTSIDE)
    for place, label in enumerate([*labels, OUTSIDE]):
        part = _part(label)
        inside = part.prefix in ("I", "E") and before.prefix in ("B", "I") and before.type == part.type
        if start >= 0 and not inside:
            found.append(Span(before.type, start, place))
            start = -1
        if start < 0 and part.prefix in ("B", "I", "E", "S"):
            start = place
        before = part
    return found


def write_spans(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """The labels of a sentence of `length` words."""
    labels = [OUTSIDE] * length
    for span in spans:
        kind = f"-{span.type}" if span.type else ""
        labels[span.start : span.end] = [f"I{kind}"] * (span.end - span.start)
        labels[span.start] = f"B{kind}"
        if scheme == "BIOES":
            labels[span.end - 1] = f"E{kind}" if span.end - span.start > 1 else f"S{kind}"
    return labels


def learnt_scheme(found: Scheme) -> Scheme:
    """The scheme for training: BIOES, which marks the ends too and gives better scores (Ratinov and Roth 2009)."""
    return "plain" if found == "plain" else "BIOES"


def all_labels(some: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """These labels and all others of spans of the same types, sorted."""
    prefixes = {"plain": "", "BIOES": "BIES"}.get(scheme, "BI")
    found = set(some)
    return tuple(sorted(found | {prefix + label[1:] for label in found - {OUTSIDE} for prefix in prefixes}))


def merge(label: str, scheme: Scheme) -> str:
    """A BIOES label in another scheme: BIO does not mark the last word of a span."""
    return {"S": "B", "E": "I"}.get(label[0], label[0]) + label[1:] if scheme == "BIO" else label


def rewrite(labels: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """The same spans as well-formed labels of a scheme; plain labels unchanged."""
    return tuple(labels if scheme == "plain" else write_spans(find_spans(labels), len(labels), scheme))


def mark(tokens: Sequence[str], labels: Sequence[str], scheme: Scheme) -> str:
    """A sentence with spans in brackets, "[NP He ] took", or with plain labels after the words, "He/PRON"."""
    if scheme == "plain":
        return " ".join(f"{token}/{label}" for token, label in zip(tokens, labels, strict=True))
    marked = list(tokens)
    for kind, first, last in find_spans(labels):
        marked[first] = f"[{kind or 'span'} {marked[first]}"
        marked[last - 1] = f"{marked[last - 1]} ]"
    return " ".join(marked)


class _Part(NamedTuple):
    prefix: str
    """B, I, O, E or S; empty: a plain label."""
    type: str


def _part(label: str) -> _Part:
    if label == OUTSIDE:
        return _Part(OUTSIDE, "")
    found = _LABEL.fullmatch(label)
    return _Part(found["prefix"], found["type"] or "") if found else _Part("", "")
