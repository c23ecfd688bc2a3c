"""Documents for tests: classifiers at toy size, random documents to feed them, and a small collection to learn from."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard import models
from regard.config import ModelSettings
from regard.models import presets
from regard.models.base import ClassifierModel
from regard.models.pooled_encoders import TransformerClassifierSettings

VOCABULARY, LABELS = 19, 3


def toy_classifier(arch: str, **changes: Any) -> ModelSettings:
    """A preset in small."""
    preset = presets("classifier")[arch]
    if isinstance(preset, TransformerClassifierSettings):
        return dataclasses.replace(preset, width=16, ffn_width=24, **changes)
    return dataclasses.replace(preset, embedding_width=12, width=8, **changes)


CASES = {arch: toy_classifier(arch) for arch in presets("classifier")} | {
    "encoder, mean": toy_classifier("transformer-classifier", pool="mean"),
    "encoder, rotary, norm after": toy_classifier("transformer-classifier", positional_encoding="rotary", norm="post"),
    "encoder, no positions": toy_classifier("transformer-classifier", positional_encoding="none", activation="swiglu"),
}


def build(settings: ModelSettings, seed: int = 0) -> ClassifierModel:
    """A classifier in evaluation mode; noise on all weights, so that no bias is zero and no norm an identity."""
    torch.default_generator.manual_seed(seed)
    model = models.build(settings, vocabulary=VOCABULARY, labels=LABELS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


class Documents(NamedTuple):
    """A batch of documents."""

    ids_BUS: Tensor
    mask_BUS: Tensor


def documents(lengths: Sequence[Sequence[int]]) -> Documents:
    """Random documents with sentences of these lengths. The padding holds random tokens too: nobody may read it."""
    sentences, words = max(map(len, lengths)), max(map(max, lengths))
    mask = torch.zeros(len(lengths), sentences, words, dtype=torch.bool)
    for row, document in enumerate(lengths):
        for place, length in enumerate(document):
            mask[row, place, :length] = True
    return Documents(torch.randint(VOCABULARY, mask.shape), mask)


# ---------------------------------------------------------------------------------------------------------------------
# A collection whose labels a few words decide

GOOD, BAD = ["lovely", "superb", "charming", "moving"], ["dull", "awful", "clumsy", "boring"]
FILLER = ["the", "film", "was", "shown", "on", "a", "Monday", "and", "people", "came", "with", "friends", "to", "see"]

SMALL = [
    "model.embedding_width=16",
    "model.width=8",
    "model.dropout=0.1",
    "train.batch_tokens=512",
    "train.learning_rate=0.01",
    "train.warmup_steps=5",
    "train.regularization_warmup=0",
    "train.ema_decay=0.9",
    "train.log_every=2",
    "train.validate_every=10",
    "train.checkpoint_every=5",
]
"""Settings of a run that learns it in seconds."""


def review(good: bool, chance: random.Random) -> str:
    """Two to four sentences of which one says what it thinks."""
    sentences = [chance.sample(FILLER, chance.randint(3, 8)) for _ in range(chance.randint(2, 4))]
    chance.choice(sentences)[1] = chance.choice(GOOD if good else BAD)
    return " ".join(" ".join(words).capitalize() + "." for words in sentences)


def write_reviews(path: Path, count: int = 200, seed: int = 1) -> Path:
    """Labelled reviews as TSV, or as JSON lines, by the name of the file."""
    chance = random.Random(seed)
    rows = [("good" if place % 2 else "bad", review(bool(place % 2), chance)) for place in range(count)]
    if path.suffix == ".jsonl":
        lines = [json.dumps({"label": label, "text": text}) for label, text in rows]
    else:
        lines = [f"{label}\t{text}" for label, text in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def train_arguments(data: Path, out: Path, *settings: str) -> list[str]:
    """Arguments of `regard train` for such a run."""
    arguments = ["train", "--task", "classify", str(data), "--out", str(out)]
    for setting in (*SMALL, *settings):
        arguments += ["--set", setting]
    return arguments
