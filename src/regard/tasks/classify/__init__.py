"""Classify: label documents, and show the words and sentences that decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config.ranges import require
from regard.tasks import Task


@dataclass(frozen=True)
class ClassifySettings:
    """How documents are read and labelled."""

    multi_label: bool = False
    """A document may have several labels, or none: each is decided on its own."""
    markup: Literal["remove", "keep"] = "remove"
    """Tags such as <br /> and entities such as &amp; are resolved to plain text, or taken as they stand."""
    sentence_tokens: int = 50
    """A sentence of more tokens goes on as another one."""
    max_tokens: int = 500
    """Of a longer document whole sentences are left out until it has no more tokens; it is counted."""
    truncate: Literal["middle", "end"] = "middle"
    """Which part of a long document is left out."""
    word_dropout: float = 0.1
    """Share of the words that are hidden each time a document is shown in training."""
    class_weights: Literal["none", "balanced"] = "none"
    """Every document counts the same, or every label does, however rare it is."""
    temperature: float = 1.0
    """Scores are divided by this before they become probabilities; training finds it on the validation part."""
    threshold: float = 0.5
    """Where there may be several labels: probability from which one is given."""
    batch_tokens: int = 8192
    """Tokens classified at once."""

    def __post_init__(self) -> None:
        require(self.sentence_tokens >= 4, "classify.sentence_tokens must be at least 4")
        require(self.max_tokens >= self.sentence_tokens, "classify.max_tokens must hold at least one sentence")
        require(0 <= self.word_dropout < 1, "classify.word_dropout must be at least 0 and below 1")
        require(self.temperature > 0, "classify.temperature must be above 0")
        require(0 < self.threshold < 1, "classify.threshold must be between 0 and 1")
        require(self.batch_tokens >= 1, "classify.batch_tokens must be at least 1")


TASK = Task(
    name="classify",
    help="label documents",
    does="classifies documents",
    model_kind="classifier",
    predictor="Classifier",
    module="classifier",
    command="classify",
    commands={"classify": "label documents, and show the words and sentences that decided"},
    settings=ClassifySettings,
    defaults={
        "model": {"arch": "han"},
        "tokenizer": {"kind": "word", "lowercase": True, "vocab_size": 30_000},
        "train": {"batch_tokens": 8192},
    },
    metrics=("accuracy", "f1", "loss"),
    scores={
        "accuracy": "accuracy {:.2%}",
        "f1": "macro F1 {:.2%}",
        "calibration_error": "calibration error {:.2%}",
        "loss": "loss {:.3f}",
    },
    unit="documents",
    unsupported=("train.r_drop", "train.fsdp"),
)
