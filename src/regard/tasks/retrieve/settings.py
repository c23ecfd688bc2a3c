"""Settings of answers from a knowledge base: the section [retrieve] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from regard.config.ranges import CheckedSettings, Count, Positive, Range, Share, require


@dataclass(frozen=True)
class RetrieveSettings(CheckedSettings):
    """The section [retrieve] of a recipe: how questions are compared with a knowledge base and answered from it."""

    section: ClassVar[str] = "retrieve"

    method: Literal["bm25", "dense", "hybrid"] = "hybrid"
    """Compare questions by words (BM25), by the vectors of an encoder (dense), or by the sum of both (hybrid)."""
    match_answers: bool = True
    """Compare a question with the answers too, not only with the known questions."""
    dense_weight: Annotated[float, Range(0, 1)] = 0.5
    """Share of the dense score in the hybrid score; training tunes it on held-out questions."""
    threshold: Annotated[float, Range(0, 1)] = 0.27
    """If all scores are lower, the reply is `fallback_text`; training tunes it on held-out questions."""
    target_answer_rate: Annotated[float, Range(above=0, high=1)] = 0.95
    """Share of the held-out questions whose score should reach the tuned threshold."""
    fallback_text: str = "I do not know."
    """The reply if no score reaches the threshold."""
    matches: Count = 5
    """Number of answers that a search returns."""
    encoder: str = ""
    """Folder of a sentence-embedding model (Hugging Face) to use instead of a trained one."""
    temperature: Positive = 0.05
    """Dense scores are divided by this in the contrastive loss."""
    word_dropout: Share = 0.1
    """Share of tokens that are replaced by UNK in training, chosen again each time a text is used."""
    max_tokens: Annotated[int, Range(4)] = 64
    """The encoder reads at most this many tokens of a text."""
    batch_tokens: Count = 8192
    """Number of tokens per batch when texts are encoded."""

    def check(self) -> None:
        require(bool(self.fallback_text.strip()), "retrieve.fallback_text must not be empty")
