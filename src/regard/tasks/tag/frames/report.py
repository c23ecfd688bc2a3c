"""Sections of the report of a tagger of frames: time lines, scores, confusion matrix, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.data.series import Series
from regard.run import Run
from regard.tasks.report import PART_NAMES, figures, label_section, last_part
from regard.tasks.tag.frames.data import PreparedFrames
from regard.tasks.tag.frames.tagger import FrameLabels, FrameTagger
from regard.tasks.timelines import timeline

MOST_SERIES = 8


def report(run: Run, tagger: FrameTagger, data: PreparedFrames, answers: Sequence[FrameLabels]) -> dict[str, Any]:
    card, part = run.card, last_part(run.card["scores"])
    scores = card["scores"][part]
    where = f"on {scores['frames']:,} {PART_NAMES[part]} frames"
    overlaps = f"at 25 % {scores['segment_f1_25']:.1%}, at 10 % {scores['segment_f1_10']:.1%}"
    given = f"{scores['predicted_segments']:,} predicted, {scores['segments']:,} correct segments"
    rows = [
        (f"accuracy {where}", f"{scores['accuracy']:.1%}", f"calibration error {scores['calibration_error']:.1%}"),
        ("segment F1, overlap of at least 50 %", f"{scores['segment_f1']:.1%}", overlaps),
        ("edit score of the segments", f"{scores['edit']:.1%}", given),
        ("training frames", f"{card['frames']['train']:,}", f"{card['training']['tokens']:,} frames read"),
    ]
    shown = list(zip(data.test or data.valid, answers, strict=True))[:MOST_SERIES]
    return {
        "title": f"Frames in {len(tagger.labels)} classes",
        "summary": figures(*rows),
        "labels": {"unit": "frames", "counted": "frames", "names": scores["names"], **label_section(scores)},
        "timelines": {
            "labels": list(scores["names"]),
            "series": [series_timeline(one, answer, tagger) for one, answer in shown],
        },
    }


def series_timeline(series: Series, answer: FrameLabels, tagger: FrameTagger) -> dict[str, Any]:
    """Return the data of the time line of a labeled series: correct and predicted labels, and their probabilities."""
    predicted = [tagger.labels[number] for number in answer.best_T.tolist()]
    correct = series.labels if len(series.labels) == len(series.frames) else ()
    return timeline(series, correct, predicted, answer.sure_T, tagger.normalization)
