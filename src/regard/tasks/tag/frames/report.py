"""Sections of the report of a tagger of frames: time lines, scores, confusion matrix, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.data.frame_store import Normalization
from regard.data.series import FrameValues, Series
from regard.run import Run
from regard.tasks.report import PART_NAMES, figures, label_section, last_part
from regard.tasks.tag.frames.data import PreparedFrames, label_runs
from regard.tasks.tag.frames.tagger import FrameLabels, FrameTagger

MOST_SERIES, MOST_FRAMES = 8, 20_000
"""Of each series, the report shows at most this many frames."""
POINTS, CURVES = 400, 6
"""The signal is drawn as at most this many curves, of at most this many points."""


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
            "series": [timeline(one, answer, tagger) for one, answer in shown],
        },
    }


def timeline(series: Series, answer: FrameLabels, tagger: FrameTagger) -> dict[str, Any]:
    """Return the data of one time line: correct and predicted segments, probabilities, and the signal as curves."""
    frames = series.frames[:MOST_FRAMES]
    labels = [tagger.labels[number] for number in answer.best_T[:MOST_FRAMES].tolist()]
    correct = series.labels[:MOST_FRAMES] if len(series.labels) == len(series.frames) else ()
    sure = _thin(answer.sure_T[:MOST_FRAMES, None])[:, 0]
    return {
        "name": series.name,
        "frames": len(frames),
        "correct": [list(one) for one in label_runs(correct)],
        "predicted": [list(one) for one in label_runs(labels)],
        "right": sum(map(str.__eq__, correct, labels)) / len(frames) if correct else None,
        "sure": np.round(sure, 3).tolist(),
        "curves": curves(frames, tagger.normalization),
    }


def curves(frames: FrameValues, normalization: Normalization) -> list[list[float]]:
    """The signal for a drawing: the first `CURVES` numbers of the normalized frames, as means of successive frames."""
    few = Normalization(normalization.mean_F[:CURVES], normalization.deviation_F[:CURVES])
    points = _thin(few.apply(frames[:, :CURVES]).clip(-4, 4))
    return np.round(points.T.astype(np.float64), 2).tolist()


def _thin(values_TF: Any) -> Any:
    """At most `POINTS` rows: the means of groups of successive rows."""
    bounds = np.unique(np.linspace(0, len(values_TF), min(POINTS, len(values_TF)) + 1).astype(np.int64))
    return np.add.reduceat(values_TF, bounds[:-1], axis=0) / np.diff(bounds)[:, None]
