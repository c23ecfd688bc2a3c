"""Sections of the report of a classifier: scores, confusion matrix, calibration, words of each label, documents."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from regard.run import Run
from regard.tasks.classify.classifier import Classification, Classifier
from regard.tasks.classify.data import LabeledDocument, PreparedDocuments
from regard.tasks.report import PART_NAMES, figures, label_section, last_part

SHOWN_DOCUMENTS, SHOWN_WORDS, SHOWN_LABELS = 8, 12, 12


def report(run: Run, classifier: Classifier, data: PreparedDocuments, answers: None = None) -> dict[str, Any]:
    card, labels, temperature = run.card, classifier.labels, run.recipe.task.temperature
    part = last_part(card["scores"])
    scores = card["scores"][part]
    title = f"Documents: {', '.join(labels[:-1])} or {labels[-1]}"
    if len(labels) > 4 or max(map(len, labels)) > 20:
        title = f"Documents in {len(labels)} classes"
    error = f"calibration error {scores['calibration_error']:.1%}, temperature {temperature:.2f}"
    looked_at = (data.test or data.valid)[:200]
    results = classifier.classify([document.text for document in looked_at], explain=True)
    return {
        "title": title,
        "summary": figures(
            (f"accuracy on {scores['documents']:,} {PART_NAMES[part]} documents", f"{scores['accuracy']:.1%}", error),
            ("macro F1", f"{scores['f1']:.1%}", f"{len(scores['by_label'])} labels"),
            ("training documents", f"{card['documents']['train']:,}", f"{card['training']['tokens']:,} shown"),
        ),
        "labels": {
            "names": list(labels),
            "documents": scores["documents"],
            **label_section(scores),
            "temperature": temperature,
            "words": label_words(results),
        },
        "documents": choose_samples(looked_at, results),
    }


def label_words(results: Sequence[Classification]) -> list[dict[str, Any]]:
    """For each predicted label, the words whose mean share of attention is larger in its documents than in others.

    The weight of a word is the difference of the two means. Words in fewer than 3 documents of a label are left out.
    """
    shares: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    everywhere: dict[str, float] = defaultdict(float)
    seen_in: dict[str, Counter[str]] = defaultdict(Counter)
    documents = Counter(result.label for result in results)
    for result in results:
        looked_at = [(word.text.lower(), share) for word, share in result.shares()]
        looked_at = [(text, share) for text, share in looked_at if any(map(str.isalpha, text))]
        for text, share in looked_at:
            shares[result.label][text] += share
            everywhere[text] += share
        seen_in[result.label].update({text for text, _ in looked_at})
    found: list[dict[str, Any]] = []
    for label in filter(None, documents):
        others = max(len(results) - documents[label], 1)
        excess = {
            text: shares[label][text] / documents[label] - (everywhere[text] - shares[label][text]) / others
            for text, count in seen_in[label].items()
            if count >= 3  # number of documents with this label that have the word
        }
        best = sorted((text for text in excess if excess[text] > 0), key=lambda text: (-excess[text], text))
        if best:
            words = [{"text": text, "weight": excess[text]} for text in best[:SHOWN_WORDS]]
            found.append({"label": label, "words": words})
    return found[:SHOWN_LABELS]


def choose_samples(documents: Sequence[LabeledDocument], results: Sequence[Classification]) -> list[dict[str, Any]]:
    """Choose documents to show in the report: a correctly classified one per label, and the most confident mistakes."""
    wrong: list[tuple[LabeledDocument, Classification]] = []
    right: dict[str, tuple[LabeledDocument, Classification]] = {}
    for document, result in zip(documents, results, strict=True):
        if len(document.text) > 2500:
            continue
        if set(result.labels) == set(document.labels):
            right.setdefault(result.label, (document, result))
        else:
            wrong.append((document, result))
    mistakes = sorted(wrong, key=lambda pair: -pair[1].probability)[: SHOWN_DOCUMENTS // 2]
    chosen = list(right.values())[: SHOWN_DOCUMENTS - len(mistakes)] + mistakes
    return [result.as_dict() | {"right": list(document.labels)} for document, result in chosen]
