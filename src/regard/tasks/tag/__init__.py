"""The task "tag": label the words of sentences, e.g. with parts of speech, or with spans of names and chunks."""

from __future__ import annotations

from regard.tasks import Task

TASK = Task(
    name="tag",
    help="label the words of sentences",
    does="tags words",
    model_kind="tagger",
    predictor="Tagger",
    module="tagger",
    command="tag",
    commands={"tag": "label the words of sentences: chunks, names, parts of speech"},
    settings="TagSettings",
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
    unsupported=("train.r_drop", "train.fsdp", "train.expert_parallel", "tokenizer.subword_regularization"),
    pipeline_tag="token-classification",
)
