"""The content of `regard inspect` for a classifier of series: the label, and the attention to each frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regard import __version__
from regard.run import Run
from regard.tasks.classify.classifier import Classifier, load
from regard.tasks.classify.frames.data import attention_timeline

__all__ = ["OPTIONS", "PAGE", "inspect", "read", "summary"]

PAGE = "frames"
OPTIONS: tuple[str, ...] = ()


def read(given: str) -> str:
    """The argument of the command: the name of a file or folder, whose first series is shown."""
    return given


def inspect(
    run: Run, path: str, classifier: Classifier | None = None, *, log: Callable[[str], None] = lambda doing: None
) -> dict[str, Any]:
    """Classify the first series of a file, and return the data of its page.

    `classifier`: the model of `run`, if it is already loaded. `log` receives progress messages.
    """
    from regard.data.series import read_series, require_width

    log("loading the model")
    classifier = classifier or load(run.folder)
    series = read_series(path, run.recipe.pictures)[0]
    require_width([series], run.sizes["frame_width"], path, "the run")
    [found] = classifier.classify([series], explain=True)
    title = " and ".join(found.labels) or "No label"
    correct = series.labels if len(series.labels) == 1 else ()
    line = attention_timeline(series, correct, found, run.normalization)
    return {
        "title": title,
        "run": run.folder.name,
        "version": __version__,
        "model": {"arch": run.recipe.model.arch},
        "verdict": found.as_dict() | {"attention": None},
        "timelines": {"labels": list(classifier.labels), "series": [line]},
    }


def summary(data: dict[str, Any]) -> str:
    verdict = data["verdict"]
    return f"{data['title']} ({verdict['probability']:.1%})"
