"""The task "caption": describe pictures in words, in one language or several; score captions, and show attention."""

from __future__ import annotations

from regard.tasks import Task

TASK = Task(
    name="caption",
    help="describe pictures",
    does="describes pictures",
    model_kind="seq2seq",
    predictor="Captioner",
    module="captioner",
    command="caption",
    commands={
        "caption": "describe pictures",
        "evaluate": "BLEU, chrF, CIDEr-D and retrieval of captions on a list of pictures",
    },
    settings="CaptionSettings",
    writes=True,
    reads_pictures=True,
    defaults={
        "model": {"arch": "transformer-mini"},
        # The length of a caption has its own limit. Without a length penalty, BLEU is higher (docs/log.md).
        "search": {"length_penalty": 0.0, "max_length_extra": 40, "max_length_ratio": 1e-9},
    },
    metrics=("chrf", "bleu", "cider", "loss"),
    scores={
        "chrf": "chrF {:.1f}",
        "bleu": "BLEU {:.1f}",
        "cider": "CIDEr-D {:.2f}",
        "recall_1": "recall@1 {:.1%}",
        "recall_5": "recall@5 {:.1%}",
        "recall_10": "recall@10 {:.1%}",
        "loss": "loss {:.3f}",
    },
    unsupported=("train.start_from",),
    pipeline_tag="image-to-text",
)
