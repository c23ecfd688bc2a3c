"""What the report of a classifier of documents shows: the words of each label, and shaded documents."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.tasks.classify.documents import ClassifiedDocument, LabeledDocument

SHOWN_WORDS, SHOWN_LABELS = 12, 12


def report_sections(
    results: Sequence[ClassifiedDocument], samples: Sequence[tuple[LabeledDocument, ClassifiedDocument]]
) -> dict[str, Any]:
    shown = [result.as_dict() | {"right": list(document.labels)} for document, result in samples]
    return {"words": label_words(results), "documents": shown}


def label_words(results: Sequence[ClassifiedDocument]) -> list[dict[str, Any]]:
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
