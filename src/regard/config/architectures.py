"""Every architecture by name, with its sizes."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from regard.config.ranges import require
from regard.errors import nearest

KEPT_PER_STATE = 14
"""Numbers that training keeps for the backward pass per layer, token and unit of width, as measured."""


@dataclass(frozen=True)
class TransformerSettings:
    """The Transformer (Vaswani et al. 2017); `transformer-base` and `transformer-big` are the paper's."""

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
    word_dropout: float = 0.0
    """Share of the tokens, of source and target, whose embedding is hidden as a whole while training."""
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
        require(self.width >= 2 and self.width % 2 == 0, "model.width must be an even number above 0")
        require(self.inner >= 1, "model.inner must be at least 1")
        require(self.heads >= 1, "model.heads must be at least 1")
        require(
            self.head_width > 0 or self.width % self.heads == 0,
            f"model.width {self.width} is not a multiple of model.heads {self.heads}; or set model.head_width",
        )
        require(self.encoder_layers >= 1 and self.decoder_layers >= 1, "model needs at least one layer on each side")
        require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")
        require(0 <= self.word_dropout < 1, "model.word_dropout must be at least 0 and below 1")
        require(self.window >= 0, "model.window must not be negative")
        for place, (name, count) in enumerate(self.kept_heads):
            guess = nearest(name, self.attentions)
            require(name in self.attentions, f'model.kept_heads: there is no attention "{name}"{guess}')
            require(0 <= count <= self.heads, f"model.kept_heads: {name} has 0 to {self.heads} heads, not {count}")
            require(name not in dict(self.kept_heads[:place]), f"model.kept_heads: {name} stands there twice")

    @property
    def attentions(self) -> tuple[str, ...]:
        """The names of all attentions, in the order of the layers."""
        encoder = [f"encoder.{layer}.self" for layer in range(self.encoder_layers)]
        kinds = ("self", "cross")
        return (*encoder, *(f"decoder.{layer}.{kind}" for layer in range(self.decoder_layers) for kind in kinds))

    def heads_in(self, attention: str) -> int:
        """How many heads an attention has."""
        return dict(self.kept_heads).get(attention, self.heads)

    def kept_per_token(self, length: float) -> float:
        """Numbers kept for the backward pass per source and target token: inputs of layers, and masks of dropout."""
        inner = 2 * self.inner * (self.encoder_layers + self.decoder_layers)
        return inner + self.width * (10 * self.encoder_layers + 18 * self.decoder_layers + 4)


@dataclass(frozen=True)
class RecurrentSettings:
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
        require(self.encoder_layers >= 1 and self.decoder_layers >= 1, "model needs at least one layer on each side")
        require(self.width >= 2 and self.width % 2 == 0, "model.width must be an even number")
        require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")
        require(self.tie == "none" or self.embedding == self.width, "model.tie needs model.embedding = model.width")

    def kept_per_token(self, length: float) -> float:
        """Numbers kept for the backward pass per source and target token: gates and states, and what was attended to.

        `length`: tokens of a sentence.
        """
        directions = 1 if self.directions == "one" else 2
        cells = 8 * self.width * (directions * self.encoder_layers + self.decoder_layers)
        attended = 0.0 if self.attention == "none" else length * (self.width if self.score == "concat" else 4)
        return cells + 2 * attended + 4 * self.embedding


@dataclass(frozen=True)
class HRANSettings:
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
    """Id of the token that closes a turn: tokenizer.special_tokens come first in a vocabulary, from 3 on."""

    def __post_init__(self) -> None:
        require(self.width >= 2 and self.width % 2 == 0, "model.width must be an even number")
        require(self.embedding >= 2, "model.embedding must be at least 2")
        require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")
        require(self.tie == "none" or self.embedding == self.width, "model.tie needs model.embedding = model.width")

    def kept_per_token(self, length: float) -> float:
        """Numbers kept for the backward pass per token of context and reply, of conversations of `length` tokens."""
        return 24 * self.width + 2 * length * self.width + 4 * self.embedding


@dataclass(frozen=True)
class HANSettings:
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
        require(self.embedding >= 2 and self.width >= 2, "model.embedding and model.width must be at least 2")
        require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")

    def kept_per_token(self, length: float) -> float:
        """Numbers kept for the backward pass per token. Two levels read in two directions."""
        return KEPT_PER_STATE * 2 * 2 * self.width


@dataclass(frozen=True)
class TransformerClassifierSettings:
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
        require(self.encoder_layers >= 1, "model.encoder_layers must be at least 1")
        require(self.width >= 2 and self.width % 2 == 0, "model.width must be an even number")
        require(
            self.heads >= 1 and self.width % self.heads == 0,
            f"model.width {self.width} is not a multiple of model.heads {self.heads}",
        )
        require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")
        require(self.window >= 8, "model.window must be at least 8")

    def kept_per_token(self, length: float) -> float:
        """Numbers kept for the backward pass per token."""
        return KEPT_PER_STATE * self.encoder_layers * self.width


@dataclass(frozen=True)
class BiGRUCRFSettings:
    """Words read from their pieces, GRUs over them from both ends, and a chain over their labels."""

    arch: str = "tagger-gru"
    """Name of the preset that the settings below start from."""
    piece: int = 32
    """Width of the embeddings of pieces: characters or subwords."""
    spelling: int = 100
    """Width of what is read from the pieces of a word."""
    words: int = 32_768
    """Rows of the table of whole words; a word finds its own by hashing."""
    embedding: int = 100
    """Width of the vectors of whole words."""
    word_dropout: float = 0.2
    """Share of the whole words that are hidden in training, so that spelling and neighbours must do."""
    layers: int = 1
    """Layers of GRUs over words."""
    width: int = 128
    """Width of the states, in each direction."""
    dropout: float = 0.5
    """Dropout on what each layer reads and on the last states."""

    def __post_init__(self) -> None:
        _require_reader(self)
        require(self.layers >= 1, "model.layers must be at least 1")

    def kept_per_token(self, length: float) -> float:
        """Numbers kept for the backward pass per word: of its spelling, and of each layer in two directions."""
        return KEPT_PER_STATE * (self.layers + 1) * 2 * self.width


@dataclass(frozen=True)
class TransformerCRFSettings:
    """Words read from their pieces, Transformer encoder blocks over them, and a chain over their labels."""

    arch: str = "tagger-encoder"
    """Name of the preset that the settings below start from."""
    piece: int = 32
    """Width of the embeddings of pieces: characters or subwords."""
    spelling: int = 100
    """Width of what is read from the pieces of a word."""
    words: int = 32_768
    """Rows of the table of whole words; a word finds its own by hashing."""
    embedding: int = 100
    """Width of the vectors of whole words."""
    word_dropout: float = 0.2
    """Share of the whole words that are hidden in training, so that spelling and neighbours must do."""
    encoder_layers: int = 3
    """Encoder blocks over words."""
    width: int = 128
    """Width of the residual stream."""
    heads: int = 4
    """Attention heads in every layer."""
    inner: int = 256
    """Width inside the feed-forward layer."""
    dropout: float = 0.3
    """Dropout on words, on the output of each sub-layer and on the last states."""
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "gelu"
    """Non-linearity of the feed-forward layer."""
    positions: Literal["sinusoidal", "rotary"] = "sinusoidal"
    """How a word knows its place."""

    def __post_init__(self) -> None:
        _require_reader(self)
        require(self.encoder_layers >= 1, "model.encoder_layers must be at least 1")
        require(
            self.heads >= 1 and self.width % (2 * self.heads) == 0,
            f"model.width {self.width} is not a multiple of twice model.heads {self.heads}",
        )

    def kept_per_token(self, length: float) -> float:
        """Numbers kept for the backward pass per word."""
        return KEPT_PER_STATE * self.encoder_layers * self.width


def _require_reader(model: BiGRUCRFSettings | TransformerCRFSettings) -> None:
    """What both taggers read words with."""
    widths = (model.piece, model.spelling, model.words, model.embedding, model.width)
    require(min(widths) >= 1, "model: every width must be at least 1")
    require(0 <= model.dropout < 1, "model.dropout must be at least 0 and below 1")
    require(0 <= model.word_dropout < 1, "model.word_dropout must be at least 0 and below 1")


@dataclass(frozen=True)
class TextEncoderSettings:
    """An encoder of questions and answers: tokens make one vector a text, near to those of texts that belong to it."""

    arch: str = "dense"
    """Name of the preset that the settings below start from."""
    encoder_layers: int = 0
    """Encoder blocks; 0: the vectors of the tokens are pooled as they are, which little data bears best."""
    width: int = 256
    """Width of the embeddings and of the residual stream."""
    heads: int = 4
    """Attention heads in every layer."""
    inner: int = 512
    """Width inside the feed-forward layer."""
    dropout: float = 0.3
    """Dropout on embeddings, on the output of each sub-layer and on what is pooled."""
    norm: Literal["after", "before"] = "before"
    """Layer norm after the residual sum or before each sub-layer."""
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "gelu"
    """Non-linearity of the feed-forward layer."""
    positions: Literal["sinusoidal", "rotary", "none"] = "none"
    """How a token knows its place."""
    pool: Literal["attention", "mean"] = "mean"
    """How the states of a text become one: weighed by a learnt context vector, or their mean."""
    vector: int = 256
    """Width of the vector."""

    def __post_init__(self) -> None:
        require(self.encoder_layers >= 0, "model.encoder_layers must not be negative")
        require(self.width >= 2 and self.width % 2 == 0, "model.width must be an even number")
        require(self.vector >= 2, "model.vector must be at least 2")
        require(
            self.heads >= 1 and self.width % self.heads == 0,
            f"model.width {self.width} is not a multiple of model.heads {self.heads}",
        )
        require(0 <= self.dropout < 1, "model.dropout must be at least 0 and below 1")

    def kept_per_token(self, length: float) -> float:
        """Numbers kept for the backward pass per token."""
        return KEPT_PER_STATE * max(self.encoder_layers, 1) * self.width


ModelSettings = (
    TransformerSettings
    | RecurrentSettings
    | HRANSettings
    | HANSettings
    | TransformerClassifierSettings
    | BiGRUCRFSettings
    | TransformerCRFSettings
    | TextEncoderSettings
)

PRESETS: Mapping[str, ModelSettings] = types.MappingProxyType(
    {
        "transformer-tiny": TransformerSettings(
            "transformer-tiny", 4, 4, 128, 4, inner=256, dropout=0.3, norm="before"
        ),
        "transformer-mini": TransformerSettings(
            "transformer-mini", 3, 3, 192, 4, inner=512, dropout=0.3, norm="before"
        ),
        "transformer-small": TransformerSettings("transformer-small", 3, 3, 256, 4, inner=1024),
        "transformer-base": TransformerSettings("transformer-base"),
        "transformer-big": TransformerSettings("transformer-big", 6, 6, 1024, 16, inner=4096, dropout=0.3),
        "seq2seq-lstm": RecurrentSettings("seq2seq-lstm", reverse_source=True),
        "bahdanau": RecurrentSettings("bahdanau", "gru", 1, 1, directions="both", attention="bahdanau", score="concat"),
        "luong-dot": RecurrentSettings("luong-dot", attention="luong", score="dot"),
        "luong-general": RecurrentSettings("luong-general", attention="luong", score="general"),
        "luong-concat": RecurrentSettings("luong-concat", attention="luong", score="concat"),
        "gnmt": RecurrentSettings(
            "gnmt", "lstm", 8, 8, 1024, 1024, directions="both-first", attention="bahdanau", residual_from=3
        ),
        "hran": HRANSettings(),
    }
)
"""Every encoder-decoder by name. A recipe starts from one of these and changes what it likes."""

CLASSIFIERS: Mapping[str, ModelSettings] = types.MappingProxyType(
    {"han": HANSettings(), "encoder": TransformerClassifierSettings()}
)
"""Every architecture that classifies documents, by name."""

TAGGERS: Mapping[str, ModelSettings] = types.MappingProxyType(
    {"tagger-gru": BiGRUCRFSettings(), "tagger-encoder": TransformerCRFSettings()}
)
"""Every architecture that labels words, by name."""

RETRIEVERS: Mapping[str, ModelSettings] = types.MappingProxyType({"dense": TextEncoderSettings()})
"""Every encoder of questions and answers, by name."""

ARCHITECTURES: Mapping[str, ModelSettings] = types.MappingProxyType({**PRESETS, **CLASSIFIERS, **RETRIEVERS, **TAGGERS})
"""All of them."""
