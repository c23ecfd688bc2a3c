"""The task "chat": reply in conversations. It uses the code of translation: the context is translated to a reply."""

from __future__ import annotations

from regard.tasks import Task

TURN = "<turn>"
"""Token that ends a turn inside a context."""

TASK = Task(
    name="chat",
    help="reply in conversations",
    does="answers in conversations",
    model_kind="seq2seq",
    predictor="Chatbot",
    module="chatbot",
    command="chat",
    commands={"chat": "talk to a run trained on conversations, or to a knowledge base"},
    settings="ChatSettings",
    writes=True,
    defaults={
        "tokenizer": {"special_tokens": [TURN]},
        "train": {"label_smoothing": 0.0},  # smoothing costs perplexity
        # The length of a reply hardly depends on the length of its context.
        "search": {"beam_size": 1, "max_length_ratio": 0.1, "max_length_extra": 60},
    },
    metrics=("loss", "bleu", "chrf", "reward"),
    scores={
        "perplexity": "perplexity {:.1f}",
        "distinct_1": "distinct-1 {:.3f}",
        "distinct_2": "distinct-2 {:.3f}",
        "bleu": "BLEU {:.1f}",
        "chrf": "chrF {:.1f}",
        "reward": "reward {:.4f}",
        "loss": "loss {:.3f}",
    },
    kept=("source_language", "target_language", "max_length"),
    pipeline_tag="text-generation",
)
