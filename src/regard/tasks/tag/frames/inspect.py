"""The content of `regard inspect` for a tagger of frames: labels of a series, and what they depend on."""

from __future__ import annotations

from typing import Any

import torch

from regard import __version__
from regard.layers.hooks import trace
from regard.run import Run
from regard.tasks.dataset import Log
from regard.tasks.tag.frames.data import make_frames
from regard.tasks.tag.frames.report import series_timeline
from regard.tasks.tag.frames.tagger import FrameTagger, TaggedSeries, load
from regard.tasks.tag.tagger import LONGEST_EXPLAINED

PAGE = "frames"
OPTIONS: tuple[str, ...] = ()


def read(given: str) -> str:
    """Return the file or folder to inspect; its first series is shown."""
    return given


def summary(data: dict[str, Any]) -> str:
    segments = data["tagged"]["segments"]
    return "\n".join([data["title"], *(f"{one['start']}-{one['end'] - 1}  {one['label']}" for one in segments)])


def inspect(
    run: Run, series: Any, tagger: FrameTagger | None = None, *, log: Log = lambda doing: None
) -> dict[str, Any]:
    """Label the first series of a file, or an array [T, F], and return the data of its page.

    `tagger` is the run's model, if it is already loaded. `log` receives progress messages.
    """
    log("loading the model")
    tagger = tagger or load(run.folder)
    one = tagger.read(series)[0]
    [tagged] = tagger.tag([one], explain=True)
    [answer] = tagger.answers([one.frames])
    return {
        "title": tagged.name or "A series",
        "run": run.folder.name,
        "version": __version__,
        "model": {"arch": run.recipe.model.arch},
        "timelines": {"labels": list(tagger.labels), "series": [series_timeline(one, answer, tagger)]},
        "tagged": {"segments": tagged.as_dict()["segments"], "width": tagger.width},
        "attention": attention_between(tagger, one.frames, tagged),
    }


@torch.no_grad()
def attention_between(tagger: FrameTagger, frames: Any, tagged: TaggedSeries) -> dict[str, Any] | None:
    """Return the attention weights between the frames of a series, for each layer and head.

    None if the model has no attention, or the series has more than `LONGEST_EXPLAINED` frames.
    """
    if len(frames) > LONGEST_EXPLAINED:
        return None
    with trace(tagger.model) as tape:
        tagger.model(make_frames([frames], tagger.normalization))
    maps = [
        {"name": name, "heads": seen.weights_BHTS[0].double().round(decimals=3).tolist()} for name, seen in tape.items()
    ]
    names = [f"{place} {label}" for place, label in enumerate(tagged.labels)]
    return {"source": names, "target": names, "maps": maps} if maps else None
