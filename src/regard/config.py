"""Settings: frozen dataclasses that are the only home of a default.

The text under a field is its help, in `--help` and in the documentation. `recipe.py` reads TOML into these.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from regard.errors import SettingsError, nearest


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise SettingsError(message)


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
        _require(self.weight > 0, f"data: the weight of {self.source} must be above 0, not {self.weight}")


@dataclass(frozen=True)
class Data:
    """What to learn from."""

    task: Literal["translate", "chat", "classify", "tag"] = "translate"
    """What to learn: to translate, to answer in a conversation, to classify documents, to tag words."""
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
    """Pairs with more tokens than this on either side are left out of training, and counted."""
    turns: int = 5
    """For chat: a reply is made from at most so many turns before it; 1: from the last one alone."""

    def __post_init__(self) -> None:
        _require(self.max_length >= 4, "data.max_length must be at least 4")
        _require(self.turns >= 1, "data.turns must be at least 1")
        _require(self.valid_pairs >= 0 and self.test_pairs >= 0, "data.valid_pairs and test_pairs cannot be negative")


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
        _require(self.size >= 8, "tokenizer.size must be at least 8")
        _require(0 <= self.sampling < 1, "tokenizer.sampling must be at least 0 and below 1")
        _require(all(self.symbols), "tokenizer.symbols must not be empty")


@dataclass(frozen=True)
class Transformer:
    """The Transformer (Vaswani et al. 2017). The defaults are the paper's base model."""

    arch: str = "transformer-base"
    """Name of the preset that the settings below start from."""
    encoder_layers: int = 6
    """Encoder blocks."""
    decoder_layers: int = 6
    """Decoder blocks."""
    width: int = 512
    """d_model: width of the embeddings and of the residual stream."""
    heads: int = 8
    """Attention heads in every layer."""
    head_width: int = 0
    """Width of one head; 0: width / heads."""
    inner: int = 2048
    """d_ff: width inside the feed-forward layer."""
    dropout: float = 0.1
    """Dropout on embeddings and on the output of each sub-layer, as in the paper."""
    norm: Literal["after", "before"] = "after"
    """Layer norm after the residual sum (the paper) or before each sub-layer."""
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "relu"
    """Non-linearity of the feed-forward layer."""
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    """How a token knows its place."""
    join: Literal["add", "concatenate"] = "add"
    """Positions are added to the token embedding, or concatenated beside it (a quarter of the width)."""
    max_positions: int = 512
    """Longest sentence that learned positions can take."""
    window: int = 0
    """Restricted self-attention in the encoder: each token sees this many neighbours; 0: all of them."""
    tie: Literal["all", "target", "none"] = "all"
    """Which embeddings share one matrix: source, target and output; target and output; none."""
    output_bias: bool = False
    """A bias on the scores of the vocabulary; published Marian models have one."""
    kept_heads: tuple[tuple[str, int], ...] = ()
    """Heads that pruning left, by attention, e.g. [["encoder.0.self", 2]]; an attention not named has all of them."""

    def __post_init__(self) -> None:
        _require(self.width >= 2 and self.width % 2 == 0, "model.width must be an even number")
        _require(self.heads >= 1, "model.heads must be at least 1")
        _require(
            self.head_width > 0 or self.width % self.heads == 0,
            f"model.width {self.width} is not a multiple of model.heads {self.heads}; or set model.head_width",
        )
        _require(self.encoder_layers >= 1 and self.decoder_layers >= 1, "model needs at least one layer on each side")
        _require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")
        _require(self.window >= 0, "model.window must not be negative")
        for place, (name, count) in enumerate(self.kept_heads):
            guess = nearest(name, self.attentions)
            _require(name in self.attentions, f'model.kept_heads: there is no attention "{name}"{guess}')
            _require(0 <= count <= self.heads, f"model.kept_heads: {name} has 0 to {self.heads} heads, not {count}")
            _require(name not in dict(self.kept_heads[:place]), f"model.kept_heads: {name} stands there twice")

    @property
    def attentions(self) -> tuple[str, ...]:
        """The names of all attentions, in the order of the layers."""
        encoder = [f"encoder.{layer}.self" for layer in range(self.encoder_layers)]
        kinds = ("self", "cross")
        return (*encoder, *(f"decoder.{layer}.{kind}" for layer in range(self.decoder_layers) for kind in kinds))

    def heads_in(self, attention: str) -> int:
        """How many heads an attention has."""
        return dict(self.kept_heads).get(attention, self.heads)


@dataclass(frozen=True)
class Recurrent:
    """Recurrent encoder and decoder, from Sutskever et al. 2014 over Bahdanau and Luong to GNMT."""

    arch: str = "seq2seq-lstm"
    """Name of the preset that the settings below start from."""
    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell."""
    encoder_layers: int = 2
    """Encoder layers; a two-directional layer counts once."""
    decoder_layers: int = 2
    """Decoder layers."""
    width: int = 512
    """Width of the hidden states."""
    embedding: int = 512
    """Width of the word embeddings."""
    directions: Literal["one", "both", "both-first"] = "one"
    """Encoder reads forward only, in both directions, or in both in its first layer alone (GNMT)."""
    attention: Literal["none", "bahdanau", "luong"] = "none"
    """None (the last state is passed on), Bahdanau's wiring (attend, then the cell) or Luong's (cell, then attend)."""
    score: Literal["dot", "scaled", "general", "concat"] = "concat"
    """Score of a query against a key: dot product, scaled dot product, bilinear form, or perceptron."""
    reverse_source: bool = False
    """Feed the source backwards (Sutskever et al.)."""
    residual_from: int = 0
    """First layer, counted from 1, that adds its input to its output; 0: none."""
    dropout: float = 0.2
    """Dropout between layers."""
    tie: Literal["target", "none"] = "none"
    """Share the target embedding with the output matrix (needs equal widths)."""

    def __post_init__(self) -> None:
        _require(self.encoder_layers >= 1 and self.decoder_layers >= 1, "model needs at least one layer on each side")
        _require(self.width >= 2 and self.width % 2 == 0, "model.width must be an even number")
        _require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")
        _require(self.tie == "none" or self.embedding == self.width, "model.tie needs model.embedding = model.width")


@dataclass(frozen=True)
class HRAN:
    """The hierarchical recurrent attention network (Xing et al. 2017): words make turns, turns make a conversation."""

    arch: str = "hran"
    """Name of the preset that the settings below start from."""
    width: int = 256
    """Width of the states of words (both directions together), of turns and of the decoder; the paper has 1000."""
    embedding: int = 256
    """Width of the word embeddings; the paper has 620."""
    dropout: float = 0.2
    """Dropout on what the word encoder, the decoder and the output map read."""
    tie: Literal["all", "target", "none"] = "all"
    """Which embeddings share one matrix: those of context, reply and output; of reply and output; none."""
    marker: int = 3
    """Id of the token that closes a turn: tokenizer.symbols come first in a vocabulary, from 3 on."""

    def __post_init__(self) -> None:
        _require(self.width >= 2 and self.width % 2 == 0, "model.width must be an even number")
        _require(self.embedding >= 2, "model.embedding must be at least 2")
        _require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")
        _require(self.tie == "none" or self.embedding == self.width, "model.tie needs model.embedding = model.width")


@dataclass(frozen=True)
class Hierarchical:
    """The hierarchical attention network (HAN; Yang et al. 2016): words make sentences, sentences make a document."""

    arch: str = "han"
    """Name of the preset that the settings below start from."""
    embedding: int = 128
    """Width of the word embeddings."""
    width: int = 64
    """Width of each GRU's states, one direction; the paper has 50."""
    dropout: float = 0.4
    """Share of the features that each document loses: of its words, its sentences and of the document itself."""

    def __post_init__(self) -> None:
        _require(self.embedding >= 2 and self.width >= 2, "model.embedding and model.width must be at least 2")
        _require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")


@dataclass(frozen=True)
class Encoder:
    """A Transformer encoder whose states are pooled into one vector a document."""

    arch: str = "encoder"
    """Name of the preset that the settings below start from."""
    encoder_layers: int = 2
    """Encoder blocks."""
    width: int = 128
    """Width of the embeddings and of the residual stream."""
    heads: int = 4
    """Attention heads in every layer."""
    inner: int = 256
    """Width inside the feed-forward layer."""
    dropout: float = 0.3
    """Dropout on embeddings and on the output of each sub-layer."""
    norm: Literal["after", "before"] = "before"
    """Layer norm after the residual sum or before each sub-layer."""
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "gelu"
    """Non-linearity of the feed-forward layer."""
    positions: Literal["sinusoidal", "rotary", "none"] = "sinusoidal"
    """How a token knows its place in its window."""
    pool: Literal["attention", "mean"] = "attention"
    """How the states of a document become one: weighed by a learnt context vector, or their mean."""
    window: int = 128
    """Long documents are read in windows of whole sentences with at most so many tokens; all are pooled together."""

    def __post_init__(self) -> None:
        _require(self.encoder_layers >= 1, "model.encoder_layers must be at least 1")
        _require(self.width >= 2 and self.width % 2 == 0, "model.width must be an even number")
        _require(
            self.heads >= 1 and self.width % self.heads == 0,
            f"model.width {self.width} is not a multiple of model.heads {self.heads}",
        )
        _require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")
        _require(self.window >= 8, "model.window must be at least 8")


Model = Transformer | Recurrent | HRAN | Hierarchical | Encoder

PRESETS: Mapping[str, Model] = types.MappingProxyType(
    {
        "transformer-tiny": Transformer("transformer-tiny", 4, 4, 128, 4, inner=256, dropout=0.3, norm="before"),
        "transformer-mini": Transformer("transformer-mini", 3, 3, 192, 4, inner=512, dropout=0.3, norm="before"),
        "transformer-small": Transformer("transformer-small", 3, 3, 256, 4, inner=1024),
        "transformer-base": Transformer("transformer-base"),
        "transformer-big": Transformer("transformer-big", 6, 6, 1024, 16, inner=4096, dropout=0.3),
        "seq2seq-lstm": Recurrent("seq2seq-lstm", reverse_source=True),
        "bahdanau": Recurrent("bahdanau", "gru", 1, 1, directions="both", attention="bahdanau", score="concat"),
        "luong-dot": Recurrent("luong-dot", attention="luong", score="dot"),
        "luong-general": Recurrent("luong-general", attention="luong", score="general"),
        "luong-concat": Recurrent("luong-concat", attention="luong", score="concat"),
        "gnmt": Recurrent(
            "gnmt", "lstm", 8, 8, 1024, 1024, directions="both-first", attention="bahdanau", residual_from=3
        ),
        "hran": HRAN(),
    }
)
"""Every encoder-decoder by name. A recipe starts from one of these and changes what it likes."""

CLASSIFIERS: Mapping[str, Model] = types.MappingProxyType({"han": Hierarchical(), "encoder": Encoder()})
"""Every architecture that classifies documents, by name."""

ARCHITECTURES: Mapping[str, Model] = types.MappingProxyType({**PRESETS, **CLASSIFIERS})
"""All of them."""


@dataclass(frozen=True)
class Train:
    """How to learn."""

    seed: int = 1
    """The one seed: data order, initial weights and dropout all follow from it."""
    max_steps: int = 100_000
    """Stop after this many updates."""
    minutes: float = 0.0
    """Stop after this many minutes of training; 0: no limit."""
    batch_tokens: int = 4096
    """Tokens in a batch: rows times the longer padded side."""
    accumulate: int = 1
    """Batches whose gradients are summed into one update."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam for all weights, or Muon for the matrices between hidden states and Adam for the rest."""
    learning_rate: float = 1e-3
    """Peak learning rate, reached at the end of the warm-up."""
    matrix_rate: float = 0.03
    """Peak learning rate of Muon's matrices: how far an update moves an output, at most."""
    warmup: int = 400
    """Updates over which the learning rate climbs to its peak."""
    schedule: Literal["inverse-sqrt", "cosine", "constant"] = "inverse-sqrt"
    """How the learning rate falls after the warm-up."""
    cooldown: float = 0.0
    """Share of the training, at its end, over which the rate falls to zero, whatever ends it; 0: no cooling down."""
    ease_in: int = 0
    """Updates over which dropout and subword sampling climb from nothing to their full strength; 0: full at once."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Adam's decay rates."""
    epsilon: float = 1e-9
    """Adam's epsilon."""
    weight_decay: float = 0.0
    """Decoupled weight decay on matrices."""
    label_smoothing: float = 0.1
    """Share of probability spread over all tokens in the loss."""
    r_drop: float = 0.0
    """Weight of R-Drop: each batch is seen through two dropouts, and their predictions shall agree; 0: off."""
    clip: float = 1.0
    """Largest norm of the gradient; 0: no clipping."""
    average: float = 0.998
    """Decay of the moving average of weights that is validated and kept; 0: no averaging."""
    checkpoints: int = 0
    """Validate and keep the mean of the weights at the last so many validations, instead of the moving average."""
    validate_every: int = 500
    """Updates between validations."""
    state_every: int = 500
    """Updates between states to resume from."""
    patience: int = 10
    """Stop after this many validations without a better score; 0: never."""
    metric: Literal["bleu", "chrf", "loss", "accuracy", "f1"] = "bleu"
    """The validation score that picks the best weights."""
    valid_sentences: int = 500
    """Translate this many validation sentences at each validation; 0: all."""
    log_every: int = 20
    """Updates between lines in the metrics file."""
    tensorboard: bool = False
    """Write TensorBoard events into the run folder as well."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: on a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; weights stay in float32. auto: bfloat16 on a GPU that has it, else float32."""
    shard: bool = False
    """Under torchrun: spread weights and moments over the processes (FSDP2), for models that do not fit into one."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "accumulate", "validate_every", "state_every", "log_every"):
            _require(getattr(self, name) >= 1, f"train.{name} must be at least 1")
        _require(self.batch_tokens >= 16, "train.batch_tokens must be at least 16")
        _require(self.learning_rate > 0, "train.learning_rate must be above 0")
        _require(self.matrix_rate > 0, "train.matrix_rate must be above 0")
        _require(0 <= self.average < 1, "train.average must be at least 0 and below 1")
        _require(self.checkpoints >= 0, "train.checkpoints must not be negative")
        _require(0 <= self.label_smoothing < 1, "train.label_smoothing must be at least 0 and below 1")
        _require(self.r_drop >= 0, "train.r_drop must not be negative")
        _require(0 <= self.cooldown < 1, "train.cooldown must be at least 0 and below 1")
        _require(self.ease_in >= 0, "train.ease_in must not be negative")
        _require(
            not self.shard or self.optimizer == "adam",
            f'train.shard needs train.optimizer = "adam": {self.optimizer} works on whole matrices',
        )
        _require(self.minutes >= 0 and self.patience >= 0, "train.minutes and train.patience must not be negative")


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
        _require(self.beam >= 1, "search.beam must be at least 1")
        _require(
            self.groups >= 1 and self.beam % self.groups == 0,
            f"search.beam {self.beam} does not fall into search.groups {self.groups} of equal size",
        )
        _require(self.batch_tokens >= 1, "search.batch_tokens must be at least 1")
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
            _require(getattr(self, name) >= 0, f"search.{name} must not be negative")
        _require(self.max_ratio > 0, "search.max_ratio must be above 0")
        _require(self.max_source >= 1, "search.max_source must be at least 1")
        _require(0 < self.top_p <= 1, "search.top_p must be above 0 and at most 1")
        _require(self.epsilon < 1, "search.epsilon must be below 1")
        _require(self.repetition_penalty >= 1, "search.repetition_penalty must be at least 1")


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
        _require(self.sentence_tokens >= 4, "classify.sentence_tokens must be at least 4")
        _require(self.max_tokens >= self.sentence_tokens, "classify.max_tokens must hold at least one sentence")
        _require(0 <= self.word_dropout < 1, "classify.word_dropout must be at least 0 and below 1")
        _require(self.temperature > 0, "classify.temperature must be above 0")
        _require(0 < self.threshold < 1, "classify.threshold must be between 0 and 1")
        _require(self.batch_tokens >= 1, "classify.batch_tokens must be at least 1")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run."""

    data: Data = field(default_factory=Data)
    """What to learn from."""
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    """How text becomes tokens."""
    model: Model = PRESETS["transformer-small"]
    """The architecture and its sizes."""
    train: Train = field(default_factory=Train)
    """How to learn."""
    search: Search = field(default_factory=Search)
    """How to translate."""
    classify: Classify = field(default_factory=Classify)
    """How documents are read and labelled."""
