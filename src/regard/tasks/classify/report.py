"""Sections of the report of a classifier: scores, confusion matrix, calibration, and examples with explanations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.run import Run
from regard.tasks.classify.classifier import Classifier
from regard.tasks.classify.inputs import Classification, LabeledExample, PreparedExamples, kind_of_run
from regard.tasks.report import PART_NAMES, figures, label_section, last_part

SHOWN = 8
LOOKED_AT = 200
"""Number of held-out examples that are explained."""


def report(run: Run, classifier: Classifier, data: PreparedExamples[Any], answers: None = None) -> dict[str, Any]:
    card, labels, temperature = run.card, classifier.labels, run.recipe.task.temperature
    unit, part = classifier.reader.unit, last_part(card["scores"])
    scores = card["scores"][part]
    title = f"{unit.capitalize()}: {', '.join(labels[:-1])} or {labels[-1]}"
    if len(labels) > 4 or max(map(len, labels)) > 20:
        title = f"{unit.capitalize()} in {len(labels)} classes"
    error = f"calibration error {scores['calibration_error']:.1%}, temperature {temperature:.2f}"
    looked_at = (data.test or data.valid)[:LOOKED_AT]
    results = classifier.classify([example.content for example in looked_at], explain=True)
    samples = choose_samples(looked_at, results)
    return {
        "title": title,
        "summary": figures(
            (f"accuracy on {scores['examples']:,} {PART_NAMES[part]} {unit}", f"{scores['accuracy']:.1%}", error),
            ("macro F1", f"{scores['f1']:.1%}", f"{len(scores['by_label'])} labels"),
            (f"training {unit}", f"{len(data.train):,}", f"{card['training']['tokens']:,} shown"),
        ),
        "labels": {"names": list(labels), "temperature": temperature, "unit": unit, "counted": unit}
        | label_section(scores),
        **kind_of_run(run).report_sections(results, samples),
    }


def choose_samples(
    examples: Sequence[LabeledExample], results: Sequence[Classification]
) -> list[tuple[LabeledExample, Classification]]:
    """Choose examples to show in the report: a correctly classified one per label, and the most confident mistakes."""
    wrong: list[tuple[LabeledExample, Classification]] = []
    right: dict[str, tuple[LabeledExample, Classification]] = {}
    for example, result in zip(examples, results, strict=True):
        if not result.fits_report:
            continue
        if set(result.labels) == set(example.labels):
            right.setdefault(result.label, (example, result))
        else:
            wrong.append((example, result))
    mistakes = sorted(wrong, key=lambda pair: -pair[1].probability)[: SHOWN // 2]
    return list(right.values())[: SHOWN - len(mistakes)] + mistakes
