"""The task "embed": learn vectors of words from texts (skip-gram), and find words with similar vectors."""

from __future__ import annotations

from regard.tasks import Task

TASK = Task(
    name="embed",
    help="learn vectors of words from texts",
    does="finds similar words",
    model_kind="word-vectors",
    predictor="WordVectors",
    module="vectors",
    command="neighbours",
    commands={
        "neighbours": "words with similar vectors; king - man + woman",
        "analogies": "accuracy of word vectors on a file of analogies",
        "evaluate": "how well word vectors predict the words around each word of a file",
    },
    settings="EmbedSettings",
    defaults={
        "model": {"arch": "skip-gram"},
        "tokenizer": {"kind": "word", "lowercase": True},
        # The gradients are sparse: Adagrad updates only the rows of the words in a batch.
        "train": {
            "optimizer": "adagrad",
            "learning_rate": 0.1,
            "schedule": "constant",
            "label_smoothing": 0.0,
            "clip_norm": 0.0,
            "ema_decay": 0.0,
            "patience": 0,
        },
    },
    metrics=("pair_accuracy", "loss"),
    scores={
        "pair_accuracy": "{:.2%} of neighbours above noise",
        "loss": "loss {:.3f} per pair",
    },
    unit="pairs",
    files=("word-counts.json",),
    unsupported=("train.r_drop", "train.fsdp", "train.expert_parallel", "train.label_smoothing"),
)
