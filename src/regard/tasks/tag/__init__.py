"""The task "tag": label the words of sentences, e.g. with names or parts of speech, or the frames of series.

The files in this folder are for words. Those in frames/ are for frames of sensors and videos.
"""

from __future__ import annotations

from regard.tasks import Task

TASK = Task(
    name="tag",
    help="label the words of sentences, or the frames of series",
    does="tags words or frames",
    model_kind="tagger",
    predictor="Tagger",
    module="tagger",
    command="tag",
    commands={
        "tag": "label the words of sentences, or the frames of series: chunks, names, activities",
        "evaluate": "scores of a tagger on a labeled file",
    },
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
        "segment_f1": "segment F1@50 {:.2%}",
        "edit": "edit score {:.2%}",
        "calibration_error": "calibration error {:.2%}",
        "loss": "loss {:.3f}",
    },
    unit="words",
    reads_pictures=True,
    variants={"frame_width": "frames"},
    files=("normalization.json",),
    unsupported=("train.r_drop", "train.fsdp", "train.expert_parallel", "tokenizer.subword_regularization"),
    pipeline_tag="token-classification",
)
