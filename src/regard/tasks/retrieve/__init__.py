"""Retrieve: answer questions from a knowledge base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from regard.config.ranges import CheckedSettings, Count, Positive, Range, Share, require
from regard.tasks import Task


@dataclass(frozen=True)
class RetrieveSettings(CheckedSettings):
    """How questions are answered from a knowledge base."""

    section: ClassVar[str] = "retrieve"

    method: Literal["bm25", "dense", "both"] = "both"
    """Questions are compared by their words (BM25), by the vectors of an encoder (dense), or by both, added up."""
    match_answers: bool = True
    """A question is compared with the answers too, and not with the known questions alone."""
    dense_weight: Annotated[float, Range(0, 1)] = 0.5
    """With both: the share of the dense score, both on one scale; training finds it on held-out questions."""
    threshold: Annotated[float, Range(0, 1)] = 0.27
    """Where no score reaches this, the answer is `unknown`; training finds it on held-out questions."""
    target_answer_rate: Annotated[float, Range(above=0, high=1)] = 0.95
    """Share of the held-out questions that shall reach the threshold which training finds."""
    fallback_text: str = "I do not know."
    """What is said to a question that is not known."""
    matches: Count = 5
    """How many answers are looked at, the best first."""
    encoder: str = ""
    """Folder of a sentence-embedding model (Hugging Face) that is used instead of one trained here."""
    temperature: Positive = 0.05
    """Dense scores are divided by this where they compete: in training, and between the texts of one answer."""
    word_dropout: Share = 0.1
    """Share of the tokens that are hidden each time a text is shown in training."""
    max_tokens: Annotated[int, Range(4)] = 64
    """The encoder reads so many tokens of a text."""
    batch_tokens: Count = 8192
    """Tokens encoded at once."""

    def check(self) -> None:
        """The fallback is an answer."""
        require(bool(self.fallback_text.strip()), "retrieve.fallback_text must not be empty")


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
