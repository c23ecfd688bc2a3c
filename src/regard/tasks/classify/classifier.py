"""`Classifier` assigns labels to documents or pictures, and explains them by attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.analysis.label_attribution import attribute_label
from regard.config import Recipe
from regard.data.batches import in_batches
from regard.errors import RunError, nearest
from regard.layers.hooks import trace
from regard.models.base import ClassifierModel, count_parameters
from regard.run import Run
from regard.tasks.classify.inputs import LabeledExample, Reader, kind_of_run
from regard.tasks.classify.settings import ClassifySettings
from regard.tasks.labels import LabelScores, score_labels, to_probabilities
from regard.text.words import ShadedWord


class Classifier:
    """Classifies documents or pictures with a trained model. `regard.load` makes a classifier from a run folder."""

    def __init__(self, model: ClassifierModel, reader: Reader, labels: Sequence[str], recipe: Recipe):
        self.model, self.reader, self.labels, self.recipe = model, reader, tuple(labels), recipe

    def __repr__(self) -> str:
        size = count_parameters(self.model)
        return f"<Classifier: {type(self.model).__name__}, {size:,} parameters, {len(self.labels)} labels>"

    def classify(self, contents: Any, *, explain: bool = False) -> list[Any]:
        """Assign labels to one or more inputs. `explain` adds the attention weights of their parts.

        Documents are given as texts; pictures as paths, contents of files (bytes) or arrays of pixels. The results are
        subclasses of `Classification`.
        """
        contents = list(contents) if isinstance(contents, list | tuple) else [contents]
        settings, results = self.recipe.task, []
        encoded = self.reader.encode(contents)
        weights: dict[int, Any] = {}
        logits_BL = score_inputs(self.model, self.reader, encoded, self.recipe, weights if explain else None)
        probability_BL = to_probabilities(logits_BL, settings.temperature, several=settings.multi_label).tolist()
        for place, content in enumerate(contents):
            probabilities = dict(zip(self.labels, probability_BL[place], strict=True))
            ranked = sorted(self.labels, key=lambda label: -probabilities[label])
            likely = [label for label in ranked if probabilities[label] >= settings.threshold]
            given = likely if settings.multi_label else ranked[:1]
            common = {
                "label": given[0] if given else "",
                "probability": probabilities[ranked[0]],
                "probabilities": probabilities,
                "labels": tuple(given),
            }
            results.append(self.reader.classification(content, encoded[place], weights.get(place), **common))
        return results

    def attribute(self, text: str, label: str = "", method: str = "integrated") -> list[ShadedWord]:
        """The words that the model read, each with its contribution to the log-probability of `label`.

        Without `label`, the most likely label is used. A word with a negative weight is evidence against the label.
        `analysis/label_attribution.py` describes the methods "gradient", "integrated" and "occlusion".
        """
        if label and label not in self.labels:
            raise RunError(f'the label "{label}" is unknown to this run{nearest(label, self.labels)}')
        document = self.reader.batch(self.reader.encode([text])).to(self.model.output.weight.device)
        with torch.no_grad():
            index = self.labels.index(label) if label else int(self.model(document)[0].argmax())
        several = self.recipe.task.multi_label
        return self.reader.attributed(
            text, attribute_label(self.model, document, index, method, several=several).tolist()
        )

    def logits(self, contents: Sequence[Any]) -> Tensor:
        """Logits [B inputs, L labels] of the model, not divided by the calibration temperature."""
        return score_inputs(self.model, self.reader, self.reader.encode(contents), self.recipe)

    def score(self, examples: Sequence[LabeledExample]) -> LabelScores:
        unit = self.reader.unit
        unknown = sorted({label for example in examples for label in example.labels} - set(self.labels))
        if unknown:
            known = f"{len(self.labels)} labels ({', '.join(self.labels[:8])}{', ...' if len(self.labels) > 8 else ''})"
            problem = f'the label "{unknown[0]}" is unknown to this run, which has {known}'
            raise RunError(f"{problem}; correct or remove the {unit} with this label")
        return score_logits(
            self.logits([example.content for example in examples]), examples, self.labels, self.recipe.task
        )


def load(run: str | Path | Run, *others: str | Path) -> Classifier:
    opened = Run.open(run).require("classify")
    if others:
        raise RunError(f"{others[0]}: several classifiers cannot be combined to an ensemble; give only one run")
    model = opened.load_network()
    assert isinstance(model, ClassifierModel)
    return Classifier(model, kind_of_run(opened).open_reader(opened), opened.labels, opened.recipe)


def target_of(examples: Sequence[LabeledExample], labels: Sequence[str]) -> Tensor:
    """Correct labels as a matrix [B examples, L labels]: 1 if the example has the label, otherwise 0."""
    target_BL = torch.zeros(len(examples), len(labels))
    index = {label: place for place, label in enumerate(labels)}
    for row, example in enumerate(examples):
        target_BL[row, [index[label] for label in example.labels]] = 1.0
    return target_BL


@torch.no_grad()
def score_inputs(
    model: ClassifierModel,
    reader: Reader,
    encoded: Sequence[Any],
    recipe: Recipe,
    weights: dict[int, Any] | None = None,
) -> Tensor:
    """Compute the logits [B inputs, L labels] of encoded inputs, in batches of inputs of similar length.

    `weights`: an empty dict to fill: `weights[i]` becomes what `Reader.weigh` returns for input i. None: attention is
    not recorded.
    """
    device = model.output.weight.device
    logits_BL = torch.zeros(len(encoded), model.output.out_features)
    for places in in_batches(list(map(reader.length, encoded)), recipe.task.batch_tokens):
        batch = reader.batch([encoded[place] for place in places]).to(device)
        if weights is None:
            logits_BL[places] = model(batch).float().cpu()
            continue
        with trace(model) as tape:
            logits_BL[places] = model(batch).float().cpu()
        weights.update(zip(places, reader.weigh(model, tape, batch), strict=True))
    return logits_BL


def score_logits(
    logits_BL: Tensor, examples: Sequence[LabeledExample], labels: Sequence[str], settings: ClassifySettings
) -> LabelScores:
    """Compute accuracy, F1, calibration error etc. of the labels that the logits predict. `labels`: all L names."""
    several = settings.multi_label
    probability_BL = to_probabilities(logits_BL, settings.temperature, several=several).numpy()
    target_BL = target_of(examples, labels).numpy() > 0
    return score_labels(probability_BL, target_BL, labels, several=several, threshold=settings.threshold)
