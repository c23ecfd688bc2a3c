"""`Classifier` labels documents, and explains the labels by the weights of words and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.analysis.label_attribution import attribute_label
from regard.config import Recipe
from regard.data.batches import in_batches, make_documents
from regard.data.store import Sentences
from regard.errors import RunError, nearest
from regard.layers.hooks import trace
from regard.models.base import ClassifierModel, count_parameters
from regard.run import Run
from regard.tasks.classify.data import LabeledDocument, ShownWindow, encode_document, show_document
from regard.tasks.classify.settings import ClassifySettings
from regard.tasks.labels import LabelScores, score_labels, to_probabilities
from regard.text.tokenizer import Tokenizer
from regard.text.words import ShadedSentence, ShadedWord, words


@dataclass(frozen=True)
class Classification:
    """The labels that a classifier assigned to a document, and the probabilities of all labels."""

    text: str
    label: str
    """The most likely label; empty if labels are decided independently and none reaches the threshold."""
    probability: float
    """Calibrated probability of the most likely label."""
    probabilities: dict[str, float]
    """Probabilities of all labels, in the order of labels.json."""
    labels: tuple[str, ...]
    """The assigned labels, most likely first; exactly one label if classify.multi_label is false."""
    truncated_tokens: int = 0
    """Number of tokens that were not read because the document is too long."""
    sentences: tuple[ShadedSentence, ...] | None = None
    """The sentences that were read, with their weights; None if `explain` was false."""

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON data. Without `sentences` if the document was classified with `explain=False`."""
        made = vars(self) | {"labels": list(self.labels)}
        shaded = made.pop("sentences")
        return made if shaded is None else made | {"sentences": [sentence.as_dict() for sentence in shaded]}

    def shares(self) -> list[tuple[ShadedWord, float]]:
        """The words of the document in order, each with its share (0 to 1) of the attention; [] without `explain`."""
        return [(word, one.weight * word.weight) for one in self.sentences or () for word in one.words]


class Classifier:
    """Classifies documents with a trained model. `regard.load` makes a classifier from a run folder."""

    def __init__(self, model: ClassifierModel, tokenizer: Tokenizer, labels: Sequence[str], recipe: Recipe):
        self.model, self.tokenizer, self.labels, self.recipe = model, tokenizer, tuple(labels), recipe

    def __repr__(self) -> str:
        size = count_parameters(self.model)
        return f"<Classifier: {type(self.model).__name__}, {size:,} parameters, {len(self.labels)} labels>"

    def classify(self, texts: str | Sequence[str], *, explain: bool = False) -> list[Classification]:
        """Assign labels to one or more documents. `explain` adds the attention weights of sentences and words."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        settings, results = self.recipe.task, []
        encoded = [encode_document(text, self.tokenizer, settings) for text in texts]
        shares: dict[int, list[float]] = {}
        documents = [one.sentences for one in encoded]
        logits_BL = score_documents(self.model, documents, self.tokenizer.pad, self.recipe, shares if explain else None)
        probability_BL = to_probabilities(logits_BL, settings.temperature, several=settings.multi_label).tolist()
        for place, text in enumerate(texts):
            probabilities = dict(zip(self.labels, probability_BL[place], strict=True))
            ranked = sorted(self.labels, key=lambda label: -probabilities[label])
            likely = [label for label in ranked if probabilities[label] >= settings.threshold]
            given = likely if settings.multi_label else ranked[:1]
            label, best = given[0] if given else "", probabilities[ranked[0]]
            sentences = shade(show_document(text, self.tokenizer, settings), shares[place]) if explain else None
            truncated = encoded[place].truncated_tokens
            results.append(Classification(text, label, best, probabilities, tuple(given), truncated, sentences))
        return results

    def attribute(self, text: str, label: str = "", method: str = "integrated") -> list[ShadedWord]:
        """The words that the model read, each with its contribution to the log-probability of `label`.

        Without `label`, the most likely label is used. A word with a negative weight is evidence against the label.
        `analysis/label_attribution.py` describes the methods "gradient", "integrated" and "occlusion".
        """
        settings = self.recipe.task
        if label and label not in self.labels:
            raise RunError(f'the label "{label}" is unknown to this run{nearest(label, self.labels)}')
        sentences = encode_document(text, self.tokenizer, settings).sentences
        document = make_documents([sentences], self.tokenizer.pad, self.recipe.model.document_window)
        document = document.to(self.model.output.weight.device)
        with torch.no_grad():
            index = self.labels.index(label) if label else int(self.model(document)[0].argmax())
        shares = attribute_label(self.model, document, index, method, several=settings.multi_label).tolist()
        shown = show_document(text, self.tokenizer, settings)
        return [word for sentence in join_pieces(shown, shares) for word in sentence]

    def logits(self, texts: Sequence[str]) -> Tensor:
        """Logits [B texts, L labels] of the model, not divided by the calibration temperature."""
        documents = [encode_document(text, self.tokenizer, self.recipe.task).sentences for text in texts]
        return score_documents(self.model, documents, self.tokenizer.pad, self.recipe)

    def score(self, documents: Sequence[LabeledDocument]) -> LabelScores:
        unknown = sorted({label for document in documents for label in document.labels} - set(self.labels))
        if unknown:
            known = f"{len(self.labels)} labels ({', '.join(self.labels[:8])}{', ...' if len(self.labels) > 8 else ''})"
            problem = f'the label "{unknown[0]}" is unknown to this run, which has {known}'
            raise RunError(f"{problem}; correct or remove the documents with this label")
        logits_BL = self.logits([document.text for document in documents])
        return score_logits(logits_BL, documents, self.labels, self.recipe.task)


def shade(sentences: Sequence[ShownWindow], shares: Sequence[float]) -> tuple[ShadedSentence, ...]:
    """Give each sentence of a document, and each word, its weight. `shares`: the weights of all tokens, in order.

    The weight of a sentence is the sum over its tokens. The weights of the words of a sentence are scaled to sum to 1.
    """
    shaded = []
    for sentence, joined in zip(sentences, join_pieces(sentences, shares), strict=True):
        total = sum(word.weight for word in joined)
        scale = 1 / total if total else 0.0
        scaled = tuple(ShadedWord(word.text, word.weight * scale) for word in joined)
        shaded.append(ShadedSentence(sentence.text, total, scaled))
    return tuple(shaded)


def join_pieces(sentences: Sequence[ShownWindow], shares: Iterable[float]) -> list[list[ShadedWord]]:
    """Add up the weights of the tokens of each word; returns a list of weighted words for each sentence.

    `shares`: the weights of all tokens of all `sentences`, in order.
    """
    joined, left = [], iter(shares)
    for text, pieces in sentences:
        found = words(text)
        sums = [0.0] * len(found)
        place = 0
        for piece in pieces:
            while place + 1 < len(found) and found[place].end <= piece.start:
                place += 1
            sums[place] += next(left)
        joined.append([ShadedWord(word.text, share) for word, share in zip(found, sums, strict=True)])
    return joined


def load(run: str | Path | Run, *others: str | Path) -> Classifier:
    opened = Run.open(run).require("classify")
    if others:
        raise RunError(f"{others[0]}: several classifiers cannot be combined to an ensemble; give only one run")
    model = opened.load_network()
    assert isinstance(model, ClassifierModel)
    return Classifier(model, opened.tokenizers[0], opened.labels, opened.recipe)


def target_of(documents: Sequence[LabeledDocument], labels: Sequence[str]) -> Tensor:
    """Correct labels as a matrix [B documents, L labels]: 1 if the document has the label, otherwise 0."""
    target_BL = torch.zeros(len(documents), len(labels))
    index = {label: place for place, label in enumerate(labels)}
    for row, document in enumerate(documents):
        target_BL[row, [index[label] for label in document.labels]] = 1.0
    return target_BL


@torch.no_grad()
def score_documents(
    model: ClassifierModel,
    documents: Sequence[Sentences],
    pad: int,
    recipe: Recipe,
    shares: dict[int, list[float]] | None = None,
) -> Tensor:
    """Compute the logits [B documents, L labels], in batches of documents of similar length.

    `documents`: for each document, the token ids of its sentences. `shares`: an empty dict to fill: `shares[i]` becomes
    the list of the attention weights of all tokens of document i; they sum to 1. None: weights are not recorded.
    """
    device = model.output.weight.device
    logits_BL = torch.zeros(len(documents), model.output.out_features)
    for places in in_batches([sum(map(len, one)) for one in documents], recipe.task.batch_tokens):
        batch = make_documents([documents[place] for place in places], pad, recipe.model.document_window).to(device)
        if shares is None:
            logits_BL[places] = model(batch).float().cpu()
            continue
        with trace(model) as tape:
            logits_BL[places] = model(batch).float().cpu()
        shares_BUS = model.shading(tape, batch).float().cpu()
        for place, shares_US, mask_US in zip(places, shares_BUS, batch.mask_BUS.cpu(), strict=True):
            shares[place] = shares_US[mask_US].tolist()
    return logits_BL


def score_logits(
    logits_BL: Tensor, documents: Sequence[LabeledDocument], labels: Sequence[str], settings: ClassifySettings
) -> LabelScores:
    """Compute accuracy, F1, calibration error etc. of the labels that the logits predict. `labels`: all L names."""
    several = settings.multi_label
    probability_BL = to_probabilities(logits_BL, settings.temperature, several=several).numpy()
    target_BL = target_of(documents, labels).numpy() > 0
    return score_labels(probability_BL, target_BL, labels, several=several, threshold=settings.threshold)
