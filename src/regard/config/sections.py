"""What to learn from, and how text becomes tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config.ranges import require, require_finite
from regard.registry import TASKS


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
class DataSettings:
    """What to learn from."""

    task: str = next(iter(TASKS))
    """What to learn: the name of a task, e.g. "tag"; `regard train --help` lists them."""
    train: tuple[Corpus, ...] = ()
    """The corpora to train on, as [[data.train]] tables."""
    valid: tuple[Corpus, ...] = ()
    """The corpora to validate on; empty: `valid_size` pairs are held out of the training data."""
    test: tuple[Corpus, ...] = ()
    """The corpora to score once, after training."""
    valid_size: int = 1000
    """How many pairs to hold out when `valid` is empty; at most a twentieth of the data, of documents a tenth."""
    test_size: int = 1000
    """How many pairs to hold out for the last score when `valid` and `test` are empty; at most as many as above."""
    source_language: str = ""
    """Language code of the source, e.g. "en": names the run's card and finds the side of a TMX or PO file."""
    target_language: str = ""
    """Language code of the target."""
    max_length: int = 250
    """Pairs with more tokens than this on either side are left out of training and the validation loss, and counted."""

    def __post_init__(self) -> None:
        require(self.max_length >= 4, "data.max_length must be at least 4")
        require(self.valid_size >= 0 and self.test_size >= 0, "data.valid_size and test_size cannot be negative")


@dataclass(frozen=True)
class TokenizerSettings:
    """How text becomes tokens."""

    kind: Literal["bpe", "unigram", "word", "character"] = "bpe"
    """Subwords by BPE or unigram (SentencePiece, any text survives), whole words, or characters."""
    vocab_size: int = 8000
    """Number of tokens in the vocabulary, the four special ones included."""
    joint: bool = True
    """One vocabulary for both sides (needed to tie source and target embeddings), or one for each."""
    lowercase: bool = False
    """Fold case before tokenizing. The case of the output is lost."""
    subword_regularization: float = 0.0
    """Subword regularisation while training: share of BPE merges dropped, or 1 / temperature of unigram sampling."""
    special_tokens: tuple[str, ...] = ()
    """Texts that are one token each, wherever they stand; chat has the mark that closes a turn."""

    def __post_init__(self) -> None:
        require(self.vocab_size >= 8, "tokenizer.vocab_size must be at least 8")
        require(0 <= self.subword_regularization < 1, "tokenizer.subword_regularization must be at least 0 and below 1")
        require(
            not self.subword_regularization or self.kind in ("bpe", "unigram"),
            'tokenizer.subword_regularization needs subwords; set it to 0, or tokenizer.kind to "bpe" or "unigram"',
        )
        require(all(self.special_tokens), "tokenizer.special_tokens must not be empty")


# How to learn.


@dataclass(frozen=True)
class TrainSettings:
    """How to learn."""

    seed: int = 1
    """The one seed: data order, initial weights and dropout all follow from it."""
    max_steps: int = 100_000
    """Stop after this many steps."""
    max_minutes: float = 0.0
    """Stop after this many minutes of training and validating (reading the data comes on top); 0: no limit."""
    batch_tokens: int = 4096
    """Tokens in a batch: rows times the longer padded side."""
    gradient_accumulation: int = 1
    """Batches whose gradients are summed into one step."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam for all weights, or Muon for the matrices between hidden states and Adam for the rest."""
    learning_rate: float = 1e-3
    """Peak learning rate, reached at the end of the warm-up."""
    muon_learning_rate: float = 0.03
    """Peak learning rate of Muon's matrices: how far a step moves an output, at most."""
    warmup_steps: int = 400
    """Updates over which the learning rate climbs to its peak."""
    schedule: Literal["inverse-sqrt", "cosine", "constant"] = "inverse-sqrt"
    """How the learning rate falls after the warm-up."""
    cooldown: float = 0.0
    """Share of the training, at its end, over which the rate falls to zero and words are cut as usual; 0: none."""
    zero_init_residual: bool = False
    """Let the sub-layers of a Transformer add nothing before the first step; they find out what to add."""
    regularization_warmup: int = 0
    """Updates over which dropout and subword sampling climb from nothing to their full strength; 0: full at once."""
    adam_betas: tuple[float, float] = (0.9, 0.98)
    """Adam's decay rates."""
    adam_epsilon: float = 1e-9
    """Adam's epsilon."""
    weight_decay: float = 0.0
    """Decoupled weight decay on matrices."""
    label_smoothing: float = 0.1
    """Share of probability spread over all tokens in the loss."""
    r_drop: float = 0.0
    """Weight of R-Drop: each batch is seen through two dropouts, and their predictions shall agree; 0: off."""
    clip_norm: float = 1.0
    """Largest norm of the gradient; 0: no clipping."""
    ema_decay: float = 0.998
    """Decay of the moving average of weights that is validated and kept; 0: no averaging."""
    average_checkpoints: int = 0
    """Validate and keep the mean of the weights at the last so many validations, instead of the moving average."""
    validate_every: int = 500
    """Updates between validations."""
    checkpoint_every: int = 500
    """Updates between states to resume from."""
    patience: int = 10
    """Stop after this many validations without a better one, for models that write also by the loss; 0: never."""
    metric: str = "loss"
    """The validation score that picks the best weights; each task has its own scores and its own default."""
    validation_sentences: int = 500
    """Translate this many validation sentences at each validation; 0: all."""
    log_every: int = 20
    """Updates between lines in the metrics file."""
    tensorboard: bool = False
    """Write TensorBoard events into the run folder as well."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train; auto: on an NVIDIA or AMD GPU if there is one. mps (the GPU of a Mac) has not been tested."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; weights stay in float32. auto: bfloat16 on a GPU that has it, else float32."""
    fsdp: bool = False
    """Under torchrun: spread weights and moments over the processes (FSDP2), for models that do not fit into one."""

    def __post_init__(self) -> None:
        require_finite(self, "train")
        for name in ("max_steps", "gradient_accumulation", "validate_every", "checkpoint_every", "log_every"):
            require(getattr(self, name) >= 1, f"train.{name} must be at least 1")
        require(-(2**63) <= self.seed < 2**63, "train.seed must be a number of 64 bits")
        require(self.validation_sentences >= 0, "train.validation_sentences must not be negative")
        require(self.batch_tokens >= 16, "train.batch_tokens must be at least 16")
        require(self.learning_rate > 0, "train.learning_rate must be above 0")
        require(self.muon_learning_rate > 0, "train.muon_learning_rate must be above 0")
        for name in ("warmup_steps", "weight_decay", "clip_norm"):
            require(getattr(self, name) >= 0, f"train.{name} must not be negative")
        require(all(0 <= beta < 1 for beta in self.adam_betas), "train.adam_betas must be at least 0 and below 1")
        require(self.adam_epsilon > 0, "train.adam_epsilon must be above 0")
        require(0 <= self.ema_decay < 1, "train.ema_decay must be at least 0 and below 1")
        require(self.average_checkpoints >= 0, "train.average_checkpoints must not be negative")
        require(0 <= self.label_smoothing < 1, "train.label_smoothing must be at least 0 and below 1")
        require(self.r_drop >= 0, "train.r_drop must not be negative")
        require(0 <= self.cooldown < 1, "train.cooldown must be at least 0 and below 1")
        require(self.regularization_warmup >= 0, "train.regularization_warmup must not be negative")
        require(
            not self.fsdp or self.optimizer == "adam",
            f'train.fsdp needs train.optimizer = "adam": {self.optimizer} works on whole matrices',
        )
        require(
            self.max_minutes >= 0 and self.patience >= 0, "train.max_minutes and train.patience must not be negative"
        )


@dataclass(frozen=True)
class SearchSettings:
    """How to translate."""

    beam_size: int = 5
    """Hypotheses kept; 1 is greedy."""
    length_penalty: float = 1.0
    """Exponent of the length that a hypothesis' log-probability is divided by."""
    length_penalty_form: Literal["plain", "gnmt"] = "plain"
    """Divide by length ** length_penalty (plain), or by ((5 + length) / 6) ** length_penalty (Wu et al. 2016)."""
    coverage_penalty: float = 0.0
    """Weight of the penalty for source tokens that no output token looked at (Wu et al. 2016); 0: none."""
    stop: Literal["beam-full", "exact"] = "beam-full"
    """A sentence is done when `beam` hypotheses have ended, or only when no open hypothesis can still win (exact)."""
    beam_groups: int = 1
    """Groups into which the beam falls, each kept from writing what those before it write (Vijayakumar et al. 2016)."""
    diversity_penalty: float = 0.5
    """With groups: by how much a token's log-probability falls for each hypothesis that has it at the same place."""
    sample: bool = False
    """Draw each token at random instead of searching for the best."""
    temperature: float = 1.0
    """When sampling: below 1 makes likely tokens likelier, 0 is greedy."""
    top_k: int = 0
    """When sampling: only from this many likeliest tokens; 0: all."""
    top_p: float = 1.0
    """When sampling: only from the likeliest tokens that together reach this probability."""
    epsilon_cutoff: float = 0.0
    """When sampling: only from tokens more probable than this."""
    seed: int = 1
    """When sampling: the same seed draws the same translation of a sentence, whatever is translated beside it."""
    min_length: int = 0
    """A translation has at least this many tokens."""
    max_length_ratio: float = 2.0
    """A translation may have this many tokens for each source token, plus `max_length_extra`."""
    max_length_extra: int = 10
    """Tokens allowed beyond `max_length_ratio` times the source length."""
    no_repeat_ngram_size: int = 0
    """No run of this many tokens stands twice in a translation; 0: any may."""
    repetition_penalty: float = 1.0
    """Factor on the log-probability of tokens that were written before; above 1 they become rarer."""
    suppress_tokens: tuple[str, ...] = ()
    """Tokens that are never written, as the vocabulary spells them."""
    replace_unknown: bool = False
    """For word vocabularies: write unknown words, each replaced by the source word most looked at."""
    ensemble_average: Literal["mean", "log-mean"] = "mean"
    """An ensemble takes the mean of its members' probabilities, or of their logarithms."""
    retry_failures: bool = True
    """Try once more with safer settings when a translation loops or is empty."""
    max_source_tokens: int = 250
    """Texts of more tokens than this are long."""
    long_lines: Literal["split", "refuse"] = "split"
    """Long texts are cut at sentence ends, translated in pieces and joined again; or refused."""
    max_joined_tokens: int = 0
    """Sentences on one line are translated together up to so many tokens; training sets it; 0: each alone."""
    batch_tokens: int = 4096
    """Source tokens translated at once."""

    def __post_init__(self) -> None:
        require_finite(self, "search")
        require(self.beam_size >= 1, "search.beam_size must be at least 1")
        require(
            self.beam_groups >= 1 and self.beam_size % self.beam_groups == 0,
            f"search.beam_size {self.beam_size} does not fall into search.beam_groups {self.beam_groups} of equal size",
        )
        require(self.batch_tokens >= 1, "search.batch_tokens must be at least 1")
        for name in (
            "coverage_penalty",
            "diversity_penalty",
            "temperature",
            "top_k",
            "epsilon_cutoff",
            "min_length",
            "max_length_extra",
            "no_repeat_ngram_size",
            "max_joined_tokens",
        ):
            require(getattr(self, name) >= 0, f"search.{name} must not be negative")
        require(self.max_length_ratio > 0, "search.max_length_ratio must be above 0")
        require(self.max_source_tokens >= 1, "search.max_source_tokens must be at least 1")
        require(0 < self.top_p <= 1, "search.top_p must be above 0 and at most 1")
        require(self.epsilon_cutoff < 1, "search.epsilon_cutoff must be below 1")
        require(self.repetition_penalty >= 1, "search.repetition_penalty must be at least 1")
