"""Scores of labeled words: F1 of spans as in the CoNLL shared tasks, accuracy, confusion matrix, calibration.

A span is correct if its type and both ends are correct, as in conlleval; tests compare with seqeval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from regard.tasks.labels import reliability
from regard.tasks.tag.spans import OUTSIDE, Scheme, Span, find_spans


@dataclass(frozen=True)
class TagScores:
    """Scores of predicted labels over a set of sentences.

    Labels either mark spans, e.g. B-NP, or are plain, e.g. parts of speech (see `regard.tasks.tag.spans`).
    """

    accuracy: float
    """Share of words with the correct label."""
    f1: float
    """Macro F1: the mean F1 over types of spans, or over labels if they are plain."""
    words: int
    sentences: int
    span_f1: float | None = None
    """F1 of all spans together; None if labels are plain."""
    precision: float | None = None
    """Share of the predicted spans that are correct; None if labels are plain."""
    recall: float | None = None
    """Share of the correct spans that were predicted; None if labels are plain."""
    by_label: dict[str, dict[str, float]] = field(default_factory=dict)
    """Precision, recall, F1 and count of each type of span; if labels are plain, of each label."""
    names: tuple[str, ...] = ()
    """Rows and columns of `confusion`: the types of spans and O, or the labels if they are plain."""
    confusion: list[list[int]] = field(default_factory=list)
    """Number of words by correct name (row) and predicted name (column), in the order of `names`."""
    calibration_error: float = 0.0
    """Expected calibration error (ECE). Words are divided into bins by the probability of their predicted labels. The
    error is the mean of abs(mean probability - accuracy) over bins, weighted by their numbers of words."""
    reliability: list[dict[str, float]] = field(default_factory=list)
    """For each bin of probability: mean probability, share of correct labels, number of words."""

    def as_dict(self) -> dict[str, Any]:
        """Return the scores as a dictionary for JSON, without scores that are None."""
        return {key: value for key, value in asdict(self).items() if value is not None} | {"names": list(self.names)}


def score_tags(
    right: Sequence[Sequence[str]],
    given: Sequence[Sequence[str]],
    scheme: Scheme,
    probabilities: Sequence[Sequence[float]] = (),
) -> TagScores:
    """Score the predicted labels `given` against the correct labels `right`; both have a list of labels per sentence.

    `scheme` is the scheme of the run ("plain" if its labels mark no spans).
    `probabilities`, if given, has the probability of each predicted label, for the calibration error.
    """
    marks_spans = scheme != "plain"
    hits, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for one, other in zip(right, given, strict=True):
        spans, others = (_spans(tags, scheme) for tags in (one, other))
        for counter, part in ((hits, spans & others), (found, others), (wanted, spans)):
            counter.update(span.type for span in part)
    by_label = {name: _figures(hits[name], found[name], wanted[name]) for name in sorted(found | wanted)}
    whole = _figures(hits.total(), found.total(), wanted.total())
    pairs = [pair for one, other in zip(right, given, strict=True) for pair in zip(one, other, strict=True)]
    is_right = np.array([one == other for one, other in pairs], np.bool_)
    types = Counter((type_of(one), type_of(other)) for one, other in pairs) if marks_spans else Counter(pairs)
    names = tuple(sorted({name for pair in types for name in pair}))
    shares = np.array([share for row in probabilities for share in row])
    error, bins = reliability(shares, is_right) if probabilities else (0.0, [])
    return TagScores(
        accuracy=float(is_right.mean()) if pairs else 0.0,
        f1=sum(one["f1"] for one in by_label.values()) / max(len(by_label), 1),
        words=len(pairs),
        sentences=len(right),
        span_f1=whole["f1"] if marks_spans else None,
        precision=whole["precision"] if marks_spans else None,
        recall=whole["recall"] if marks_spans else None,
        by_label=by_label,
        names=names,
        confusion=[[types[row, column] for column in names] for row in names],
        calibration_error=error,
        reliability=bins,
    )


def hits_and_total(right: Sequence[str], given: Sequence[str], scheme: Scheme) -> tuple[int, int]:
    """Two counts of a sentence whose sums over sentences have the quotient F1: 2 * correct spans, and all spans.

    All spans: the correct ones and the predicted ones. Without spans ("plain"), the quotient is the accuracy.
    """
    wanted, found = _spans(right, scheme), _spans(given, scheme)
    return 2 * len(wanted & found), len(wanted) + len(found)


def _spans(tags: Sequence[str], scheme: Scheme) -> set[Span]:
    """The spans that the labels of a sentence mark. If the labels are plain, every word is a span."""
    if scheme == "plain":
        return {Span(tag, place, place + 1) for place, tag in enumerate(tags)}
    return set(find_spans(tags))


def type_of(label: str) -> str:
    """Return the type in a label, e.g. NP for B-NP and I-NP. Labels without a type, e.g. O or NOUN, stay unchanged."""
    return OUTSIDE if label == OUTSIDE else label.partition("-")[2] or label


def _figures(hits: int, found: int, wanted: int) -> dict[str, float]:
    return {
        "precision": hits / max(found, 1),
        "recall": hits / max(wanted, 1),
        "f1": 2 * hits / max(found + wanted, 1),
        "count": wanted,
    }
