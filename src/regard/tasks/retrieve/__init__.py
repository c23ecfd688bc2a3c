"""The task "retrieve": answer questions from a knowledge base."""

from __future__ import annotations

from regard.tasks import Task

TASK = Task(
    name="retrieve",
    help="answer questions from a knowledge base",
    does="answers from a knowledge base",
    model_kind="text-encoder",
    predictor="Retriever",
    module="retriever",
    command="chat",
    commands={"index": "fill, change or score the knowledge base that a run answers from"},
    settings="RetrieveSettings",
    defaults={
        "model": {"arch": "text-encoder"},
        "tokenizer": {"lowercase": True, "vocab_size": 4000},
        "train": {"label_smoothing": 0.0},
    },
    metrics=("mrr",),
    scores={
        "mrr": "MRR {:.3f}",
        "recall_1": "recall@1 {:.2%}",
        "recall_5": "recall@5 {:.2%}",
        "loss": "loss {:.3f}",
    },
    unit="pairs",
    unsupported=("train.r_drop", "train.fsdp", "train.expert_parallel", "train.label_smoothing"),
    files=("vectors.safetensors",),
    text_files=("knowledge.jsonl",),
    pipeline_tag="sentence-similarity",
)
