"""Scores of labeled frames: accuracy, F1 by label, and how well segments are found.

A segment is the longest stretch of frames with one label. Two scores compare the predicted segments of a series with
the correct ones; both punish a prediction that changes too often, which the accuracy hardly does:

- segment F1@k (Lea et al. 2017): a predicted segment is correct if a correct segment of the same label overlaps with it
  by at least k percent (intersection over union) and no other predicted segment was counted for that segment;
- the edit score (Lea et al. 2016): 1 minus the edit distance between the two sequences of segment labels, divided by
  the length of the longer sequence. It ignores where segments begin and end.

All labels count; none is a background.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.tasks.tag.scores import score_tags
from regard.tasks.timelines import LabelRun, label_runs

OVERLAPS = (0.1, 0.25, 0.5)
"""Smallest overlaps of F1@10, F1@25 and F1@50."""


@dataclass(frozen=True)
class FrameScores:
    """Scores of predicted labels over a set of series."""

    accuracy: float
    """Share of frames with the correct label."""
    f1: float
    """Macro F1: the mean of the F1 of all labels, counted over frames."""
    segment_f1: float
    """Segment F1@50 (Lea et al. 2017)."""
    segment_f1_25: float
    segment_f1_10: float
    edit: float
    """Edit score (Lea et al. 2016), the mean over series."""
    frames: int
    series: int
    segments: int
    """Number of correct segments."""
    predicted_segments: int
    by_label: dict[str, dict[str, float]] = field(default_factory=dict)
    """Precision, recall, F1 and number of frames of each label."""
    names: tuple[str, ...] = ()
    """The labels: the rows and columns of `confusion`."""
    confusion: list[list[int]] = field(default_factory=list)
    """Number of frames by correct label (row) and predicted label (column)."""
    calibration_error: float = 0.0
    """Expected calibration error (ECE) of the probabilities of the predicted labels."""
    reliability: list[dict[str, float]] = field(default_factory=list)
    """For each bin of probability: mean probability, share of correct labels, number of frames."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"names": list(self.names)}


def score_frames(
    right: Sequence[Sequence[str]], given: Sequence[Sequence[str]], probabilities: Sequence[Sequence[float]] = ()
) -> FrameScores:
    """Score the predicted labels `given` against the correct labels `right`; both have the labels of each series.

    `probabilities`, if given, has the probability of each predicted label, for the calibration error.
    """
    frames = score_tags(right, given, "plain", probabilities)
    pairs = [(list(label_runs(one)), list(label_runs(other))) for one, other in zip(right, given, strict=True)]
    wanted, found = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    f1 = [2 * sum(matches(*pair, overlap) for pair in pairs) / max(wanted + found, 1) for overlap in OVERLAPS]
    return FrameScores(
        accuracy=frames.accuracy,
        f1=frames.f1,
        segment_f1=f1[2],
        segment_f1_25=f1[1],
        segment_f1_10=f1[0],
        edit=sum(edit_score(*pair) for pair in pairs) / max(len(pairs), 1),
        frames=frames.words,
        series=frames.sentences,
        segments=wanted,
        predicted_segments=found,
        by_label=frames.by_label,
        names=frames.names,
        confusion=frames.confusion,
        calibration_error=frames.calibration_error,
        reliability=frames.reliability,
    )


def matches(right: Sequence[LabelRun], given: Sequence[LabelRun], overlap: float) -> int:
    """The number of predicted segments that are correct, in the order of time.

    As in the paper, a predicted segment is compared with the correct segment of its label that overlaps most.
    """
    taken: set[int] = set()
    for segment in given:
        best, place = 0.0, -1
        for number, other in enumerate(right):
            if other.label == segment.label and other.start < segment.end and segment.start < other.end:
                common = min(segment.end, other.end) - max(segment.start, other.start)
                share = common / (max(segment.end, other.end) - min(segment.start, other.start))
                best, place = max((best, place), (share, number))
        if place >= 0 and best >= overlap and place not in taken:
            taken.add(place)
    return len(taken)


def edit_score(right: Sequence[LabelRun], given: Sequence[LabelRun]) -> float:
    """1 minus the normalized Levenshtein distance between the labels of two sequences of segments."""
    row = list(range(len(given) + 1))
    for number, one in enumerate(right, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(given, 1):
            change = before + (one.label != other.label)
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, change)
    return 1 - row[-1] / max(len(right), len(given), 1)
