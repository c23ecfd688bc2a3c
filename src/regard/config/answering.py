"""How a trained model is used: to search for an output, or to label documents or words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config.required import require, require_finite


@dataclass(frozen=True)
class Search:
    """How to translate."""

    beam: int = 5
    """Hypotheses kept; 1 is greedy."""
    length_penalty: float = 1.0
    """Exponent of the length that a hypothesis' log-probability is divided by."""
    penalty_form: Literal["plain", "gnmt"] = "plain"
    """Divide by length ** length_penalty (plain), or by ((5 + length) / 6) ** length_penalty (Wu et al. 2016)."""
    coverage_penalty: float = 0.0
    """Weight of the penalty for source tokens that no output token looked at (Wu et al. 2016); 0: none."""
    stop: Literal["enough", "exact"] = "enough"
    """A sentence is done when `beam` hypotheses have ended, or only when no open hypothesis can still win (exact)."""
    groups: int = 1
    """Groups into which the beam falls, each kept from writing what those before it write (Vijayakumar et al. 2016)."""
    diversity: float = 0.5
    """With groups: by how much a token's log-probability falls for each hypothesis that has it at the same place."""
    sample: bool = False
    """Draw each token at random instead of searching for the best."""
    temperature: float = 1.0
    """When sampling: below 1 makes likely tokens likelier, 0 is greedy."""
    top_k: int = 0
    """When sampling: only from this many likeliest tokens; 0: all."""
    top_p: float = 1.0
    """When sampling: only from the likeliest tokens that together reach this probability."""
    epsilon: float = 0.0
    """When sampling: only from tokens more probable than this."""
    seed: int = 1
    """When sampling: the same seed draws the same translation of a sentence, whatever is translated beside it."""
    min_length: int = 0
    """A translation has at least this many tokens."""
    max_ratio: float = 2.0
    """A translation may have this many tokens for each source token, plus `max_extra`."""
    max_extra: int = 10
    """Tokens allowed beyond `max_ratio` times the source length."""
    no_repeat: int = 0
    """No run of this many tokens stands twice in a translation; 0: any may."""
    repetition_penalty: float = 1.0
    """Factor on the log-probability of tokens that were written before; above 1 they become rarer."""
    suppress: tuple[str, ...] = ()
    """Tokens that are never written, as the vocabulary spells them."""
    replace_unknown: bool = False
    """For word vocabularies: write unknown words, each replaced by the source word most looked at."""
    mixing: Literal["mean", "log-mean"] = "mean"
    """An ensemble takes the mean of its members' probabilities, or of their logarithms."""
    retry: bool = True
    """Try once more with safer settings when a translation loops or is empty."""
    max_source: int = 250
    """Texts of more tokens than this are long."""
    long_lines: Literal["split", "refuse"] = "split"
    """Long texts are cut at sentence ends, translated in pieces and joined again; or refused."""
    join_up_to: int = 0
    """Sentences on one line are translated together up to so many tokens; training sets it; 0: each alone."""
    batch_tokens: int = 4096
    """Source tokens translated at once."""

    def __post_init__(self) -> None:
        require_finite(self, "search")
        require(self.beam >= 1, "search.beam must be at least 1")
        require(
            self.groups >= 1 and self.beam % self.groups == 0,
            f"search.beam {self.beam} does not fall into search.groups {self.groups} of equal size",
        )
        require(self.batch_tokens >= 1, "search.batch_tokens must be at least 1")
        for name in (
            "coverage_penalty",
            "diversity",
            "temperature",
            "top_k",
            "epsilon",
            "min_length",
            "max_extra",
            "no_repeat",
            "join_up_to",
        ):
            require(getattr(self, name) >= 0, f"search.{name} must not be negative")
        require(self.max_ratio > 0, "search.max_ratio must be above 0")
        require(self.max_source >= 1, "search.max_source must be at least 1")
        require(0 < self.top_p <= 1, "search.top_p must be above 0 and at most 1")
        require(self.epsilon < 1, "search.epsilon must be below 1")
        require(self.repetition_penalty >= 1, "search.repetition_penalty must be at least 1")


@dataclass(frozen=True)
class Classify:
    """How documents are read and labelled."""

    several: bool = False
    """A document may have several labels, or none: each is decided on its own."""
    markup: Literal["remove", "keep"] = "remove"
    """Tags such as <br /> and entities such as &amp; are resolved to plain text, or taken as they stand."""
    sentence_tokens: int = 50
    """A sentence of more tokens goes on as another one."""
    max_tokens: int = 500
    """Of a longer document whole sentences are left out until it has no more tokens; it is counted."""
    leave_out: Literal["middle", "end"] = "middle"
    """Which part of a long document is left out."""
    word_dropout: float = 0.1
    """Share of the words that are hidden each time a document is shown in training."""
    class_weights: Literal["none", "balanced"] = "none"
    """Every document counts the same, or every label does, however rare it is."""
    temperature: float = 1.0
    """Scores are divided by this before they become probabilities; training finds it on the validation part."""
    threshold: float = 0.5
    """Where there may be several labels: probability from which one is given."""
    batch_tokens: int = 8192
    """Tokens classified at once."""

    def __post_init__(self) -> None:
        require(self.sentence_tokens >= 4, "classify.sentence_tokens must be at least 4")
        require(self.max_tokens >= self.sentence_tokens, "classify.max_tokens must hold at least one sentence")
        require(0 <= self.word_dropout < 1, "classify.word_dropout must be at least 0 and below 1")
        require(self.temperature > 0, "classify.temperature must be above 0")
        require(0 < self.threshold < 1, "classify.threshold must be between 0 and 1")
        require(self.batch_tokens >= 1, "classify.batch_tokens must be at least 1")


@dataclass(frozen=True)
class Tag:
    """How words are read and labelled."""

    column: int = 0
    """Column of a CoNLL file that holds the labels, counted from 1; 0: the last one, of CoNLL-U the part of speech."""
    scheme: Literal["BIO", "BIOES"] = "BIO"
    """How answers write spans; they are learnt as BIOES, from files in BIO, IOB1 or BIOES."""
    word_pieces: int = 20
    """Of a word with more pieces, the middle is not read."""
    max_words: int = 150
    """A sentence of more words is read in stretches of so many that overlap."""
    batch_words: int = 4096
    """Words labelled at once."""

    def __post_init__(self) -> None:
        require(self.column >= 0, "tag.column counts from 1; 0 is the last one")
        require(self.word_pieces >= 2, "tag.word_pieces must be at least 2")
        require(self.max_words >= 8, "tag.max_words must be at least 8")
        require(self.batch_words >= 1, "tag.batch_words must be at least 1")


@dataclass(frozen=True)
class Retrieve:
    """How questions are answered from a knowledge base."""

    method: Literal["bm25", "dense", "both"] = "both"
    """Questions are compared by their words (BM25), by the vectors of an encoder (dense), or by both, added up."""
    answers: bool = True
    """A question is compared with the answers too, and not with the known questions alone."""
    weight: float = 0.5
    """With both: the share of the dense score, both on one scale; training finds it on held-out questions."""
    threshold: float = 0.27
    """Where no score reaches this, the answer is `unknown`; training finds it on held-out questions."""
    answered: float = 0.95
    """Share of the held-out questions that shall reach the threshold which training finds."""
    unknown: str = "I do not know."
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
        require(0 <= self.weight <= 1, "retrieve.weight must be between 0 and 1")
        require(0 <= self.threshold <= 1, "retrieve.threshold must be between 0 and 1, as scores are")
        require(0 < self.answered <= 1, "retrieve.answered must be above 0 and at most 1")
        require(bool(self.unknown.strip()), "retrieve.unknown must not be empty")
        require(self.matches >= 1, "retrieve.matches must be at least 1")
        require(self.temperature > 0, "retrieve.temperature must be above 0")
        require(0 <= self.word_dropout < 1, "retrieve.word_dropout must be at least 0 and below 1")
        require(self.max_tokens >= 4, "retrieve.max_tokens must be at least 4")
        require(self.batch_tokens >= 1, "retrieve.batch_tokens must be at least 1")
