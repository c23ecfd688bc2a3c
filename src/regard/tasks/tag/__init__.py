"""Tag: label the words of sentences, e.g. with parts of speech, or with the spans of names and chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from regard.config.ranges import CheckedSettings, Count, CountOrZero, Range
from regard.tasks import Task


@dataclass(frozen=True)
class TagSettings(CheckedSettings):
    """How words are read and labelled."""

    section: ClassVar[str] = "tag"

    column: CountOrZero = 0
    """Column of a CoNLL file that holds the labels, counted from 1; 0: the last one (CoNLL-U: UPOS)."""
    scheme: Literal["BIO", "BIOES"] = "BIO"
    """How answers mark spans. They are learnt as BIOES, from files in BIO, IOB1 or BIOES."""
    max_word_pieces: Annotated[int, Range(2)] = 20
    """Of a word with more pieces, the pieces in the middle are left out."""
    max_words: Annotated[int, Range(8)] = 150
    """A sentence of more words is read in overlapping windows of this many words."""
    batch_words: Count = 4096
    """Words in a batch when a trained model labels sentences."""


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
