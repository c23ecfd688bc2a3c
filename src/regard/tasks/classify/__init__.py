"""The task "classify": label documents, pictures or series of frames, and show where the model looked."""

from __future__ import annotations

from regard.tasks import Task

TASK = Task(
    name="classify",
    help="label documents, pictures or series",
    does="classifies documents, pictures or series",
    model_kind="classifier",
    predictor="Classifier",
    module="classifier",
    command="classify",
    commands={
        "classify": "label documents, pictures or series, and show what had the most attention",
        "evaluate": "accuracy, F1 and calibration of a classifier on labeled examples",
    },
    settings="ClassifySettings",
    variants={"picture_channels": "pictures", "frame_width": "frames"},
    files=("normalization.json",),
    reads_pictures=True,
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
    unit="examples",
    unsupported=("train.r_drop", "train.fsdp", "train.expert_parallel"),
    pipeline_tag="text-classification",
)
