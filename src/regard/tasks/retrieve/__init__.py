"""Retrieve: answer questions from a knowledge base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config.ranges import require
from regard.tasks import Task


@dataclass(frozen=True)
class RetrieveSettings:
    """How questions are answered from a knowledge base."""

    method: Literal["bm25", "dense", "both"] = "both"
    """Questions are compared by their words (BM25), by the vectors of an encoder (dense), or by both, added up."""
    match_answers: bool = True
    """A question is compared with the answers too, and not with the known questions alone."""
    dense_weight: float = 0.5
    """With both: the share of the dense score, both on one scale; training finds it on held-out questions."""
    threshold: float = 0.27
    """Where no score reaches this, the answer is `unknown`; training finds it on held-out questions."""
    target_answer_rate: float = 0.95
    """Share of the held-out questions that shall reach the threshold which training finds."""
    fallback_text: str = "I do not know."
    """What is said to a question that is not known."""
    matches: int = 5
    """How many answers are looked at, the best first."""
    encoder: str = ""
    """Folder of a sentence-embedding model (Hugging Face) that is used instead of one trained here."""
    temperature: float = 0.05
    """Dense scores are divided by this where they compete: in training, and between the texts of one answer."""
    word_dropout: float = 0.1
    """Share of the tokens that are hidden each time a text is shown in training."""
    max_tokens: int = 64
    """The encoder reads so many tokens of a text."""
    batch_tokens: int = 8192
    """Tokens encoded at once."""

    def __post_init__(self) -> None:
        require(0 <= self.dense_weight <= 1, "retrieve.dense_weight must be between 0 and 1")
        require(0 <= self.threshold <= 1, "retrieve.threshold must be between 0 and 1, as scores are")
        require(0 < self.target_answer_rate <= 1, "retrieve.target_answer_rate must be above 0 and at most 1")
        require(bool(self.fallback_text.strip()), "retrieve.fallback_text must not be empty")
        require(self.matches >= 1, "retrieve.matches must be at least 1")
        require(self.temperature > 0, "retrieve.temperature must be above 0")
        require(0 <= self.word_dropout < 1, "retrieve.word_dropout must be at least 0 and below 1")
        require(self.max_tokens >= 4, "retrieve.max_tokens must be at least 4")
        require(self.batch_tokens >= 1, "retrieve.batch_tokens must be at least 1")


TASK = Task(
    name="retrieve",
    help="answer questions from a knowledge base",
    does="answers from a knowledge base",
    model_kind="text-encoder",
    predictor="Retriever",
    module="retriever",
    command="chat",
    commands={"index": "fill, change or score the knowledge base that a run answers from"},
    settings=RetrieveSettings,
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
    unsupported=("train.r_drop", "train.fsdp", "train.label_smoothing"),
)
