"""Sections of the report of a tagger: scores, confusion matrix, calibration, and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.run import Run
from regard.tasks.report import PART_NAMES, figures, label_section, last_part
from regard.tasks.tag.conll import TaggedSentence
from regard.tasks.tag.data import PreparedSentences
from regard.tasks.tag.scores import type_of
from regard.tasks.tag.spans import OUTSIDE, mark
from regard.tasks.tag.tagger import Tagger


def report(run: Run, tagger: Tagger, data: PreparedSentences, answers: None = None) -> dict[str, Any]:
    card, part = run.card, last_part(run.card["scores"])
    scores = card["scores"][part]
    title = f"Words in {len(tagger.labels)} classes"
    if tagger.scheme != "plain":
        types = sorted({type_of(label) for label in tagger.labels} - {OUTSIDE})
        few = 1 < len(types) <= 6
        title = f"Spans: {', '.join(types[:-1])} or {types[-1]}" if few else f"Spans of {len(types)} types"
    where = f"on {scores['words']:,} {PART_NAMES[part]} words"
    rows = []
    if "span_f1" in scores:
        both = f"precision {scores['precision']:.1%}, recall {scores['recall']:.1%}; as conlleval counts"
        rows.append((f"span F1 {where}", f"{scores['span_f1']:.1%}", both))
    error = f"calibration error {scores['calibration_error']:.1%}"
    rows += [
        ("accuracy" if rows else f"accuracy {where}", f"{scores['accuracy']:.1%}", error),
        ("training sentences", f"{card['sentences']['train']:,}", f"{card['training']['tokens']:,} words read"),
    ]
    return {
        "title": title,
        "summary": figures(*rows),
        "labels": {
            "unit": "spans" if "span_f1" in scores else "words",
            "counted": "words",
            "names": scores["names"],
            **label_section(scores),
        },
        "sides": {"source": "Sentence", "target": "Labels"},
        "samples": samples(tagger, (data.test or data.valid)[:200]),
    }


def samples(tagger: Tagger, held_out: Sequence[TaggedSentence]) -> list[dict[str, Any]]:
    """Return at most 30 of the `held_out` sentences with predicted and correct labels, those with mistakes first.

    Sentences of more than 40 words are left out.
    """
    short = [sentence for sentence in held_out if len(sentence.tokens) <= 40]
    shown: list[dict[str, Any]] = []
    for sentence, tagged in zip(short, tagger.tag([one.tokens for one in short]), strict=True):
        made, wanted = (mark(tagged.tokens, tags, tagger.scheme) for tags in (tagged.tags, sentence.tags))
        shown.append({"source": tagged.text, "output": made, "reference": wanted, "correct": made == wanted})
    shown.sort(key=lambda one: one["correct"])
    return shown[:15] + shown[15:][-15:]
