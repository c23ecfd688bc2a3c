"""Time lines of series of frames, as data for pages: the signal as curves, labels as runs, and a value per frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.frame_store import Normalization
from regard.data.series import FrameValues, Series

MOST_FRAMES = 20_000
"""Of a longer series, only the first frames are shown."""
POINTS, CURVES = 400, 6
"""The signal is drawn as at most this many curves, of at most this many points."""


class LabelRun(NamedTuple):
    """Consecutive frames with the same label."""

    label: str
    start: int
    end: int


def label_runs(labels: Sequence[str]) -> Iterator[LabelRun]:
    """Yield the longest stretches of frames with the same label, in order."""
    start = 0
    for label, group in groupby(labels):
        end = start + sum(1 for _ in group)
        yield LabelRun(label, start, end)
        start = end


def timeline(
    series: Series,
    correct: Sequence[str],
    predicted: Sequence[str],
    shares_T: NDArray[np.float64],
    normalization: Normalization,
    measure: str = "probability",
) -> dict[str, Any]:
    """Return the data of one time line.

    `correct` (may be empty) and `predicted` have the labels of all frames; `shares_T` a number from 0 to 1 for each
    frame, and `measure` its name.
    """
    frames = series.frames[:MOST_FRAMES]
    correct, predicted = correct[:MOST_FRAMES], predicted[:MOST_FRAMES]
    return {
        "name": series.name,
        "frames": len(frames),
        "correct": [list(one) for one in label_runs(correct)],
        "predicted": [list(one) for one in label_runs(predicted)],
        "right": sum(map(str.__eq__, correct, predicted)) / len(frames) if correct else None,
        "measure": measure,
        "shares": np.round(_thin(shares_T[:MOST_FRAMES, None])[:, 0], 3).tolist(),
        "curves": _curves(frames, normalization),
    }


def _curves(frames: FrameValues, normalization: Normalization) -> list[list[float]]:
    """The first `CURVES` numbers of the normalized frames, as means of successive frames."""
    few = Normalization(normalization.mean_F[:CURVES], normalization.deviation_F[:CURVES])
    points = _thin(few.apply(frames[:, :CURVES]).clip(-4, 4))
    return np.round(points.T.astype(np.float64), 2).tolist()


def _thin(values_TF: Any) -> Any:
    """At most `POINTS` rows: the means of groups of successive rows."""
    bounds = np.unique(np.linspace(0, len(values_TF), min(POINTS, len(values_TF)) + 1).astype(np.int64))
    return np.add.reduceat(values_TF, bounds[:-1], axis=0) / np.diff(bounds)[:, None]
