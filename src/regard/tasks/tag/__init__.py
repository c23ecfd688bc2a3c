"""The task "tag": label the words of sentences, e.g. with parts of speech, or with spans of names and chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from regard.config.ranges import CheckedSettings, Count, CountOrZero, Range
from regard.tasks import Task


@dataclass(frozen=True)
class TagSettings(CheckedSettings):
    """Settings for reading and labeling words."""

    section: ClassVar[str] = "tag"

    column: CountOrZero = 0
    """Column of the labels in a CoNLL file, counted from 1; 0: the last column (CoNLL-U: UPOS)."""
    scheme: Literal["BIO", "BIOES"] = "BIO"
    """Scheme of the predicted labels of spans. Training always uses BIOES; files may have BIO, IOB1 or BIOES."""
    max_word_pieces: Annotated[int, Range(2)] = 20
    """Maximum number of pieces of a word; pieces in the middle of a longer word are left out."""
    max_words: Annotated[int, Range(8)] = 150
    """A sentence with more words is read in overlapping windows of this many words."""
    batch_words: Count = 4096
    """Number of words per batch when a trained model labels sentences."""


TASK = Task(
    name="tag",
    help="label the words of sentences",
    does="tags words",
    model_kind="tagger",
    predictor="Tagger",
    module="tagger",
    command="tag",
    commands={"tag": "label the words of sentences: chunks, names, parts of speech"},
    settings=TagSettings,
    defaults={
        "model": {"arch": "bigru-crf"},
        "tokenizer": {"kind": "character", "vocab_size": 256},
        "train": {"batch_tokens": 1024, "label_smoothing": 0.0},
    },
    metrics=("accuracy", "f1", "loss"),
    scores={
        "span_f1": "span F1 {:.2%}",
        "accuracy": "accuracy {:.2%}",
        "f1": "macro F1 {:.2%}",
        "calibration_error": "calibration error {:.2%}",
        "loss": "loss {:.3f}",
    },
    unit="words",
    unsupported=("train.r_drop", "train.fsdp", "tokenizer.subword_regularization"),
)
