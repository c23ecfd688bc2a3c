"""What to learn from, and how text becomes tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config.required import require


@dataclass(frozen=True)
class Corpus:
    """One corpus of sentence pairs."""

    source: str = ""
    """File of source sentences; or one file with both sides (TSV, JSON lines, TMX, PO, Parquet); or "phrasebook"."""
    target: str = ""
    """File of target sentences, line by line beside the source; empty when `source` holds both sides."""
    weight: float = 1.0
    """How often each pair is seen in an epoch: 2 shows it twice, 0.5 shows another random half each epoch."""

    def __post_init__(self) -> None:
        require(self.weight > 0, f"data: the weight of {self.source} must be above 0, not {self.weight}")


@dataclass(frozen=True)
class Data:
    """What to learn from."""

    task: Literal["translate", "chat", "classify", "tag", "retrieve"] = "translate"
    """What to learn: to translate, to talk, to classify documents, to tag words, to find answers to questions."""
    train: tuple[Corpus, ...] = ()
    """The corpora to train on, as [[data.train]] tables."""
    valid: tuple[Corpus, ...] = ()
    """The corpora to validate on; empty: `valid_pairs` pairs are held out of the training data."""
    test: tuple[Corpus, ...] = ()
    """The corpora to score once, after training."""
    valid_pairs: int = 1000
    """How many pairs to hold out when `valid` is empty; at most a twentieth of the data, of documents a tenth."""
    test_pairs: int = 1000
    """How many pairs to hold out for the last score when `valid` and `test` are empty; at most as many as above."""
    source_language: str = ""
    """Language code of the source, e.g. "en": names the run's card and finds the side of a TMX or PO file."""
    target_language: str = ""
    """Language code of the target."""
    max_length: int = 250
    """Pairs with more tokens than this on either side are left out of training and the validation loss, and counted."""
    turns: int = 5
    """For chat: a reply is made from at most so many turns before it; 1: from the last one alone."""

    def __post_init__(self) -> None:
        require(self.max_length >= 4, "data.max_length must be at least 4")
        require(self.turns >= 1, "data.turns must be at least 1")
        require(self.valid_pairs >= 0 and self.test_pairs >= 0, "data.valid_pairs and test_pairs cannot be negative")


@dataclass(frozen=True)
class Tokenizer:
    """How text becomes tokens."""

    kind: Literal["bpe", "unigram", "word", "character"] = "bpe"
    """Subwords by BPE or unigram (SentencePiece, any text survives), whole words, or characters."""
    size: int = 8000
    """Number of tokens in the vocabulary, the four special ones included."""
    joint: bool = True
    """One vocabulary for both sides (needed to tie source and target embeddings), or one for each."""
    lowercase: bool = False
    """Fold case before tokenizing. The case of the output is lost."""
    sampling: float = 0.0
    """Subword regularisation while training: share of BPE merges dropped, or 1 / temperature of unigram sampling."""
    symbols: tuple[str, ...] = ()
    """Texts that are one token each, wherever they stand; chat has the mark that closes a turn."""

    def __post_init__(self) -> None:
        require(self.size >= 8, "tokenizer.size must be at least 8")
        require(0 <= self.sampling < 1, "tokenizer.sampling must be at least 0 and below 1")
        require(
            not self.sampling or self.kind in ("bpe", "unigram"),
            'tokenizer.sampling needs subwords; set it to 0, or tokenizer.kind to "bpe" or "unigram"',
        )
        require(all(self.symbols), "tokenizer.symbols must not be empty")
