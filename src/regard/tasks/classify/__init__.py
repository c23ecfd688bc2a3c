"""The task "classify": label documents, and show how much each word and sentence contributed."""

from __future__ import annotations

from regard.tasks import Task

TASK = Task(
    name="classify",
    help="label documents",
    does="classifies documents",
    model_kind="classifier",
    predictor="Classifier",
    module="classifier",
    command="classify",
    commands={"classify": "label documents, and show the words and sentences with the most attention"},
    settings="ClassifySettings",
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
    unsupported=("train.r_drop", "train.fsdp", "train.expert_parallel"),
    pipeline_tag="text-classification",
)
