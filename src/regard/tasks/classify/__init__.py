"""Classify: label documents, and show the words and sentences that decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from regard.config.ranges import CheckedSettings, Count, Positive, Range, Share, require
from regard.tasks import Task


@dataclass(frozen=True)
class ClassifySettings(CheckedSettings):
    """How documents are read and labelled."""

    section: ClassVar[str] = "classify"

    multi_label: bool = False
    """A document may have several labels, or none; each label is decided independently."""
    markup: Literal["remove", "keep"] = "remove"
    """Turn tags such as <br /> and entities such as &amp; into plain text, or keep them."""
    sentence_tokens: Annotated[int, Range(4)] = 50
    """A sentence with more tokens is read as several."""
    max_tokens: Count = 500
    """Whole sentences of a longer document are left out until it fits; they are reported."""
    truncate: Literal["middle", "end"] = "middle"
    """Which part of a longer document is left out."""
    word_dropout: Share = 0.1
    """Share of the tokens that are replaced by UNK each time a document is shown in training."""
    class_weights: Literal["none", "balanced"] = "none"
    """Weights in the loss: the same for every document (none), or the same total for every label (balanced)."""
    temperature: Positive = 1.0
    """Scores are divided by this before the softmax; training tunes it on the validation part."""
    threshold: Annotated[float, Range(above=0, below=1)] = 0.5
    """With multi_label: the probability from which a label is assigned."""
    batch_tokens: Count = 8192
    """Tokens per batch when documents are classified."""

    def check(self) -> None:
        """A document holds at least one sentence."""
        require(
            self.max_tokens >= self.sentence_tokens, "classify.max_tokens must be at least classify.sentence_tokens"
        )


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
