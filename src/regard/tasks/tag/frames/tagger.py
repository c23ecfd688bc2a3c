"""`FrameTagger` labels the frames of series, with segments, probabilities and the influence of each number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import Recipe
from regard.data.batches import in_batches
from regard.data.frame_store import Normalization
from regard.data.series import INPUT, FrameValues, Series, read_series, require_width, take_series
from regard.errors import RunError
from regard.models import base
from regard.run import Run
from regard.tasks.tag.data import windows
from regard.tasks.tag.frames.data import make_frames
from regard.tasks.tag.frames.scores import FrameScores, score_frames
from regard.tasks.timelines import label_runs

MOST_EXPLAINED = 64
"""Maximum number of numbers per frame for which their influence is computed."""


class FrameLabels(NamedTuple):
    """The labels of T frames as indices [T], and the probabilities [T, L] of all labels."""

    best_T: NDArray[np.int64]
    shares_TL: NDArray[np.float64]

    @property
    def sure_T(self) -> NDArray[np.float64]:
        """The probability of each label in `best_T`."""
        return np.take_along_axis(self.shares_TL, self.best_T[:, None], 1)[:, 0]


class Segment(NamedTuple):
    """Consecutive frames with the same predicted label."""

    label: str
    start: int
    """Index of the first frame."""
    end: int
    """Index of the last frame, plus 1."""
    probability: float
    """Mean probability of the label over the frames."""
    influence: tuple[float, ...] | None = None
    """For each number of a frame: by how much the log-probability of the label falls if this number is replaced by its
    mean in the training data; a mean over the frames. None if `explain` was false, or if there are too many numbers."""


@dataclass(frozen=True)
class TaggedSeries:
    """A series and the labels of its frames."""

    name: str
    labels: tuple[str, ...]
    probabilities: tuple[float, ...]
    """Marginal probability of the label of each frame."""
    segments: tuple[Segment, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON, without fields that are None."""
        segments = [
            {name: value for name, value in one._asdict().items() if value is not None} for one in self.segments
        ]
        return vars(self) | {
            "labels": list(self.labels),
            "probabilities": list(self.probabilities),
            "segments": segments,
        }


SeriesLike = Series | Any
"""A `Series`, or an array [T, F] (or nested lists) of real numbers."""


class FrameTagger:
    """A trained model with its normalization and labels. `regard.load` makes one from a run folder."""

    def __init__(self, model: base.TaggerModel, normalization: Normalization, labels: Sequence[str], recipe: Recipe):
        self.model, self.normalization, self.labels, self.recipe = model, normalization, tuple(labels), recipe
        self.width = len(normalization.mean_F)
        """Number of numbers per frame."""

    def __repr__(self) -> str:
        size = f"{base.count_parameters(self.model):,} parameters"
        return f"<FrameTagger: {type(self.model).__name__}, {size}, frames of {self.width}, {len(self.labels)} labels>"

    def tag(
        self, series: str | Path | SeriesLike | Sequence[SeriesLike], *, explain: bool = False
    ) -> list[TaggedSeries]:
        """Label the frames of a file or folder, of an array [T, F], or of a list of arrays.

        `explain` adds the influence of each number of the frames on each segment.
        """
        found = self.read(series)
        answers = self.answers([one.frames for one in found])
        return [self._join(*pair, explain) for pair in zip(found, answers, strict=True)]

    def read(self, series: str | Path | SeriesLike | Sequence[SeriesLike]) -> list[Series]:
        """Read series from a file, a folder, an array or a list of arrays, and check them."""
        if isinstance(series, str | Path):
            found = read_series(series, self.recipe.pictures)
            require_width(found, self.width, series, "the run")
            return found
        several = isinstance(series, list | tuple) and not isinstance(series, Series)
        found = [take_series(one, place) for place, one in enumerate(series if several else [series])]
        require_width(found, self.width, INPUT, "the run")
        return found

    def score(self, series: Sequence[Series]) -> FrameScores:
        """Label series and compare with their correct labels. A correct label unknown to this run is a mistake."""
        if not {label for one in series for label in one.labels} & set(self.labels):
            known = f"{len(self.labels)} labels ({', '.join(self.labels[:8])}{', ...' if len(self.labels) > 8 else ''})"
            raise RunError(f"none of the labels in the data is known to this run, which has {known}; give such data")
        given = self.answers([one.frames for one in series])
        names = [[self.labels[number] for number in one.best_T.tolist()] for one in given]
        return score_frames([one.labels for one in series], names, [one.sure_T.tolist() for one in given])

    @torch.no_grad()
    def answers(self, series: Sequence[FrameValues], without: int | None = None) -> list[FrameLabels]:
        """Label series of frames. Every frame of a long series gets its label from exactly one of its windows.

        `without`: the index of a number of the frames that is replaced by its mean in the training data.
        """
        settings, crf = self.recipe.task, self.model.crf
        parts = [(row, part) for row, frames in enumerate(series) for part in windows(len(frames), settings.max_frames)]
        found: dict[int, FrameLabels] = {}
        for places in in_batches([window.end - window.start for _, window in parts], settings.batch_words):
            chosen = [series[row][window.start : window.end] for row, window in (parts[place] for place in places)]
            batch = make_frames(chosen, self.normalization)
            if without is not None:
                batch.ids_BTS[:, :, without] = 0.0
            batch = batch.to(self.model.output.weight.device)
            logits_BTL = self.model(batch)
            best_BT = crf.best(logits_BTL, batch.mask_BT).cpu().numpy()
            shares_BTL = crf.marginals(logits_BTL, batch.mask_BT).cpu().numpy()
            for place, best_T, shares_TL in zip(places, best_BT, shares_BTL, strict=True):
                window = parts[place][1]
                kept = slice(window.first - window.start, window.last - window.start)
                found[place] = FrameLabels(best_T[kept], shares_TL[kept])
        rows: list[list[FrameLabels]] = [[] for _ in series]
        for place, (row, _) in enumerate(parts):
            rows[row].append(found[place])
        return [FrameLabels(*map(np.concatenate, zip(*row, strict=True))) for row in rows]

    def influence(self, frames: FrameValues, best_T: NDArray[np.int64]) -> NDArray[np.float64]:
        """By how much the log-probability of each label `best_T` falls without each number of the frames: [T, F]."""

        def log_probability(without: int | None) -> NDArray[np.float64]:
            [found] = self.answers([frames], without)
            return np.log(np.maximum(FrameLabels(best_T, found.shares_TL).sure_T, np.finfo(np.float64).tiny))

        whole_T = log_probability(None)
        return np.stack([whole_T - log_probability(place) for place in range(self.width)], axis=1)

    def _join(self, series: Series, answer: FrameLabels, explain: bool) -> TaggedSeries:
        labels = tuple(self.labels[number] for number in answer.best_T.tolist())
        sure_T = answer.sure_T
        influence_TF = (
            self.influence(series.frames, answer.best_T) if explain and self.width <= MOST_EXPLAINED else None
        )
        segments = []
        for label, start, end in label_runs(labels):
            influence = None if influence_TF is None else tuple(influence_TF[start:end].mean(0).tolist())
            segments.append(Segment(label, start, end, float(sure_T[start:end].mean()), influence))
        return TaggedSeries(series.name, labels, tuple(sure_T.tolist()), tuple(segments))


def load(run: str | Path | Run, *others: str | Path) -> FrameTagger:
    opened = Run.open(run).require("tag")
    if others:
        raise RunError(f"{others[0]}: taggers cannot form an ensemble; give one run")
    model = opened.load_network()
    assert isinstance(model, base.TaggerModel)
    return FrameTagger(model, opened.normalization, opened.labels, opened.recipe)
