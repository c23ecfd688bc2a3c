"""Settings of classification: the section [classify] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from regard.config.ranges import CheckedSettings, Count, Positive, Range, Share, require


@dataclass(frozen=True)
class ClassifySettings(CheckedSettings):
    """How documents are read, divided and classified."""

    section: ClassVar[str] = "classify"

    multi_label: bool = False
    """A document may have any number of labels; each label is decided independently."""
    markup: Literal["remove", "keep"] = "remove"
    """Convert tags such as <br /> and entities such as &amp; to plain text (remove), or keep them."""
    sentence_tokens: Annotated[int, Range(4)] = 50
    """A sentence with more tokens is divided into several sentences."""
    max_tokens: Count = 500
    """Maximum number of tokens of a document; whole sentences of a longer document are left out."""
    truncate: Literal["middle", "end"] = "middle"
    """Which part of a document that is too long is left out."""
    word_dropout: Share = 0.1
    """Share of tokens that are replaced by UNK in training, chosen again each time a document is used."""
    class_weights: Literal["none", "balanced"] = "none"
    """Weights in the loss: the same for all documents (none), or the same sum of weights for all labels (balanced)."""
    temperature: Positive = 1.0
    """Logits are divided by this before the softmax or sigmoid; training tunes it on the validation part."""
    threshold: Annotated[float, Range(above=0, below=1)] = 0.5
    """With multi_label, the minimum probability of an assigned label."""
    batch_tokens: Count = 8192
    """Number of tokens, patches or frames per batch when a trained model is used."""

    def check(self) -> None:
        is_enough = self.max_tokens >= self.sentence_tokens
        least = f"at least classify.sentence_tokens ({self.sentence_tokens})"
        require(is_enough, f"classify.max_tokens must be {least}, not {self.max_tokens}")
