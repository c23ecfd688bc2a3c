"""Chat: reply to what was said so far in a conversation. It builds on translation: a context in, a reply out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from regard.config.ranges import CheckedSettings, Count
from regard.tasks import Task

TURN = "<turn>"
"""Token that closes a turn inside a context."""


@dataclass(frozen=True)
class ChatSettings(CheckedSettings):
    """What a reply is made from."""

    section: ClassVar[str] = "chat"

    context_turns: Count = 5
    """A reply is made from at most this many turns before it; 1: from the last one alone."""


TASK = Task(
    name="chat",
    help="reply in conversations",
    does="answers in conversations",
    model_kind="seq2seq",
    predictor="Chatbot",
    module="chatbot",
    command="chat",
    commands={"chat": "talk to a run trained on conversations, or to a knowledge base"},
    settings=ChatSettings,
    writes=True,
    defaults={
        "tokenizer": {"special_tokens": [TURN]},
        "train": {"label_smoothing": 0.0},  # smoothing costs perplexity
        # The length of a reply does not follow that of its context.
        "search": {"beam_size": 1, "max_length_ratio": 0.1, "max_length_extra": 60},
    },
    metrics=("loss", "bleu", "chrf"),
    scores={
        "perplexity": "perplexity {:.1f}",
        "distinct_1": "distinct-1 {:.3f}",
        "distinct_2": "distinct-2 {:.3f}",
        "bleu": "BLEU {:.1f}",
        "chrf": "chrF {:.1f}",
        "loss": "loss {:.3f}",
    },
    kept=("source_language", "target_language", "max_length"),
)
