"""Spans of words, read from labels and written as labels: "B-NP I-NP O" marks a noun phrase of two words.

`find_spans` reads all schemes: IOB1 (Ramshaw and Marcus 1995), BIO (IOB2) and BIOES. Malformed labels are read as by
conlleval, the scorer of the CoNLL shared tasks: an I- without a B- starts a span. Other labels, e.g. parts of speech,
are called plain: they mark no spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

OUTSIDE = "O"
Scheme = Literal["plain", "IOB1", "BIO", "BIOES"]
_LABEL = re.compile(r"(?P<prefix>[BIES])(?:-(?P<type>.+))?")


class Span(NamedTuple):
    """The words of a sentence from index `start` to index `end` (not included), with a type such as "NP"."""

    type: str
    start: int
    end: int


def find_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Find how labels mark spans: "BIO", "IOB1", "BIOES", or "plain" if they mark none.

    `sentences` has the labels of each sentence, one per word.
    """
    prefixes: set[str] = set()
    begun_by: set[str] = set()
    for labels in sentences:
        before = (OUTSIDE, "")
        for label in labels:
            prefix, kind = part = _split(label)
            if not prefix:
                return "plain"
            prefixes.add(prefix)
            if before[0] == OUTSIDE or before[1] != kind:
                begun_by.add(prefix)
            before = part
    if prefixes <= {OUTSIDE}:
        return "plain"
    if prefixes & {"E", "S"}:
        return "BIOES"
    return "IOB1" if "I" in begun_by and "B" not in begun_by else "BIO"


def find_spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans that the labels of a sentence mark, in order. A plain label ends a span and starts none."""
    found: list[Span] = []
    start, before, before_kind = -1, OUTSIDE, ""
    for place, label in enumerate([*labels, OUTSIDE]):
        prefix, kind = _split(label)
        inside = prefix in ("I", "E") and before in ("B", "I") and before_kind == kind
        if start >= 0 and not inside:
            found.append(Span(before_kind, start, place))
            start = -1
        if start < 0 and prefix in ("B", "I", "E", "S"):
            start = place
        before, before_kind = prefix, kind
    return found


def _split(label: str) -> tuple[str, str]:
    """Split a label into its prefix (B, I, O, E or S) and its type: "B-NP" into ("B", "NP").

    The type is empty for O and for a prefix alone; both parts are empty for a plain label, e.g. a part of speech.
    """
    if label == OUTSIDE:
        return OUTSIDE, ""
    found = _LABEL.fullmatch(label)
    return (found["prefix"], found["type"] or "") if found else ("", "")


def write_spans(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """Return the labels of a sentence with `length` words and these spans: BIOES if this is `scheme`, otherwise BIO."""
    labels = [OUTSIDE] * length
    for span in spans:
        kind = f"-{span.type}" if span.type else ""
        labels[span.start : span.end] = [f"I{kind}"] * (span.end - span.start)
        labels[span.start] = f"B{kind}"
        if scheme == "BIOES":
            labels[span.end - 1] = f"E{kind}" if span.end - span.start > 1 else f"S{kind}"
    return labels


def learned_scheme(found: Scheme) -> Scheme:
    """Return the scheme of the labels in training, for files with the scheme `found`: plain labels stay plain.

    All labels of spans are converted to BIOES, which gives better scores (Ratinov and Roth 2009).
    """
    return "plain" if found == "plain" else "BIOES"


def all_labels(some: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """Return the labels `some` and all other labels of their types in `scheme` (e.g. I-NP for B-NP), sorted."""
    prefixes = {"plain": "", "BIOES": "BIES"}.get(scheme, "BI")
    found = set(some)
    return tuple(sorted(found | {prefix + label[1:] for label in found - {OUTSIDE} for prefix in prefixes}))


def merge(label: str, scheme: Scheme) -> str:
    """Convert a BIOES label to `scheme`: for BIO, S- becomes B- and E- becomes I-; for others, the label stays."""
    return {"S": "B", "E": "I"}.get(label[0], label[0]) + label[1:] if scheme == "BIO" else label


def rewrite(labels: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """Convert the labels of a sentence to `scheme`, with malformed labels corrected. If "plain", all labels stay."""
    return tuple(labels if scheme == "plain" else write_spans(find_spans(labels), len(labels), scheme))


def mark(tokens: Sequence[str], labels: Sequence[str], scheme: Scheme) -> str:
    """Return a sentence as text, with spans in brackets ("[NP He ] took") or plain labels after words ("He/PRON")."""
    if scheme == "plain":
        return " ".join(f"{token}/{label}" for token, label in zip(tokens, labels, strict=True))
    marked = list(tokens)
    for kind, first, last in find_spans(labels):
        marked[first] = f"[{kind or 'span'} {marked[first]}"
        marked[last - 1] = f"{marked[last - 1]} ]"
    return " ".join(marked)
