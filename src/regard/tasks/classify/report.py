"""The report of a classifier: how it learnt, what it confuses, how far its probabilities can be trusted, and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from regard.run import Run
from regard.tasks.classify.classifier import Classification, Classifier
from regard.tasks.classify.data import LabelledDocument, PreparedDocuments
from regard.tasks.report import PART_NAMES, figures, last_part

EXPLAINED = 200
"""Held-out documents that are looked at for the words of each label."""
SHOWN_DOCUMENTS, SHOWN_WORDS, SHOWN_LABELS = 8, 12, 12
LONGEST_SHOWN = 2500
"""Characters; longer documents are looked at, but not shown."""
SEEN_IN = 3
"""Documents that a word must have been looked at in, to be told of a label."""


def report(run: Run, classifier: Classifier, data: PreparedDocuments, answers: None = None) -> dict[str, Any]:
    """The sections of a classifier's report."""
    part = last_part(run.card["scores"])
    scores = run.card["scores"][part]
    looked_at = (data.test or data.valid)[:EXPLAINED]
    verdicts = classifier.classify([document.text for document in looked_at], explain=True)
    return {
        "title": title(classifier.labels),
        "summary": summary(run, part),
        "labels": {
            "names": list(classifier.labels),
            "documents": scores["documents"],
            "confusion": scores["confusion"],
            "by_label": scores["by_label"],
            "reliability": scores["reliability"],
            "error": scores["calibration_error"],
            "temperature": run.recipe.task.temperature,
            "words": label_words(verdicts),
        },
        "documents": shown(looked_at, verdicts),
    }


def title(labels: Sequence[str]) -> str:
    """E.g. Documents: negative or positive."""
    if len(labels) > 4 or max(map(len, labels)) > 20:
        return f"Documents in {len(labels)} classes"
    return f"Documents: {', '.join(labels[:-1])} or {labels[-1]}"


def summary(run: Run, part: str) -> list[dict[str, str]]:
    """The figures at the top of the page."""
    card = run.card
    scores, training = card["scores"][part], card["training"]
    error = f"calibration error {scores['calibration_error']:.1%}, temperature {run.recipe.task.temperature:.2f}"
    return figures(
        (f"accuracy on {scores['documents']:,} {PART_NAMES[part]} documents", f"{scores['accuracy']:.1%}", error),
        ("macro F1", f"{scores['f1']:.1%}", f"{len(scores['by_label'])} labels"),
        ("training documents", f"{card['documents']['train']:,}", f"{training['tokens']:,} shown"),
    )


def label_words(verdicts: Sequence[Classification]) -> list[dict[str, Any]]:
    """For each label given, the words that set it apart: those whose share of attention exceeds that elsewhere most.

    A word's weight is its share in the mean document that was given the label, less that in the mean other one. What is
    looked at alike under all labels tells nothing of any.
    """
    shares: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    everywhere: dict[str, float] = defaultdict(float)
    seen_in: dict[str, Counter[str]] = defaultdict(Counter)
    documents = Counter(verdict.label for verdict in verdicts)
    for verdict in verdicts:
        looked_at = [(word.text.lower(), share) for word, share in verdict.shares()]
        looked_at = [(text, share) for text, share in looked_at if any(map(str.isalpha, text))]
        for text, share in looked_at:
            shares[verdict.label][text] += share
            everywhere[text] += share
        seen_in[verdict.label].update({text for text, _ in looked_at})
    found: list[dict[str, Any]] = []
    for label in filter(None, documents):
        others = max(len(verdicts) - documents[label], 1)
        excess = {
            text: shares[label][text] / documents[label] - (everywhere[text] - shares[label][text]) / others
            for text, count in seen_in[label].items()
            if count >= SEEN_IN
        }
        best = sorted((text for text in excess if excess[text] > 0), key=lambda text: (-excess[text], text))
        if best:
            words = [{"text": text, "weight": excess[text]} for text in best[:SHOWN_WORDS]]
            found.append({"label": label, "words": words})
    return found[:SHOWN_LABELS]


def shown(documents: Sequence[LabelledDocument], verdicts: Sequence[Classification]) -> list[dict[str, Any]]:
    """Some documents with what was looked at: the mistakes that it was surest of, then right ones of each label."""
    pairs = [
        (document, verdict)
        for document, verdict in zip(documents, verdicts, strict=True)
        if len(document.text) <= LONGEST_SHOWN
    ]
    wrong = [pair for pair in pairs if set(pair[1].labels) != set(pair[0].labels)]
    wrong.sort(key=lambda pair: -pair[1].probability)
    right: dict[str, tuple[LabelledDocument, Classification]] = {}
    for document, verdict in pairs:
        if set(verdict.labels) == set(document.labels):
            right.setdefault(verdict.label, (document, verdict))
    mistakes = wrong[: SHOWN_DOCUMENTS // 2]
    chosen = list(right.values())[: SHOWN_DOCUMENTS - len(mistakes)] + mistakes
    return [verdict.as_dict() | {"right": list(document.labels)} for document, verdict in chosen]
