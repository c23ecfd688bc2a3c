"""The content of `regard inspect` for a classifier of pictures: where it looked, and the attention of every head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regard import __version__
from regard.layers.hooks import trace
from regard.run import Run
from regard.tasks.classify.classifier import Classifier, load
from regard.tasks.classify.pictures.data import ClassifiedPicture

__all__ = ["OPTIONS", "PAGE", "inspect", "read", "summary"]

PAGE = "labeled"
OPTIONS: tuple[str, ...] = ()
MOST_PATCHES = 100
"""Of pictures with more patches, only the mean of the heads of each layer is shown."""


def read(given: str) -> str:
    """The argument of the command: the name of a picture file."""
    return given


def inspect(
    run: Run,
    picture: str | bytes,
    classifier: Classifier | None = None,
    *,
    log: Callable[[str], None] = lambda doing: None,
) -> dict[str, Any]:
    """Classify one picture (a path, or the content of a file), and return the data of its page.

    `classifier`: the model of `run`, if it is already loaded. `log` receives progress messages.
    """
    log("loading the model")
    classifier = classifier or load(run.folder)
    [found] = classifier.classify([picture], explain=True)
    assert isinstance(found, ClassifiedPicture)
    title = " and ".join(found.labels) or "No label"
    height, width = run.recipe.pictures.size
    return {
        "title": title,
        "run": run.folder.name,
        "version": __version__,
        "model": {"arch": run.recipe.model.arch},
        "verdict": found.for_page(),
        "size": [height, width],
        "layers": attention_layers(classifier, found.pixels),
    }


@torch.no_grad()
def attention_layers(classifier: Classifier, pixels: Any) -> list[dict[str, Any]]:
    """The self-attention of each layer: its name, and for each head the weights [S, S] from each patch to each."""
    batch = classifier.reader.batch([pixels]).to(classifier.model.output.weight.device)
    with trace(classifier.model, "*.self") as tape:
        classifier.model(batch)
    layers = []
    for name, seen in tape.items():
        weights_HSS = seen.weights_BHTS[0].float().cpu()
        if weights_HSS.shape[-1] > MOST_PATCHES:
            weights_HSS = weights_HSS.mean(0, keepdim=True)
        layers.append({"name": name, "heads": [_rounded(weights_SS) for weights_SS in weights_HSS]})
    return layers


def _rounded(weights_SS: torch.Tensor) -> list[list[float]]:
    return [[round(weight, 4) for weight in row] for row in weights_SS.tolist()]


def summary(data: dict[str, Any]) -> str:
    verdict = data["verdict"]
    return f"{data['title']} ({verdict['probability']:.1%})"
