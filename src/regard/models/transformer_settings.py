"""Settings of the Transformer, of its experts, of encoder blocks in other models, and of the text encoder.

They are not in the files of the networks because they must be loaded without torch: translation with CTranslate2 and
retrieval with BM25 run without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from regard.config import ACTIVATIONS_PER_UNIT, ModelSettings
from regard.config.ranges import Count, EvenWidth, Layers, NotNegative, Range, Share, Width, require
from regard.errors import nearest

EXPERTS_PAPER = "a mixture of experts (Shazeer et al. 2017)"


@dataclass(frozen=True)
class BlockSettings(ModelSettings):
    """Base class of the settings of all models with Transformer blocks: width, heads, dropout and others."""

    width: EvenWidth = 512
    """d_model: width of the embeddings and of the residual stream."""
    heads: Count = 8
    """Number of attention heads in every layer."""
    ffn_width: Width = 2048
    """d_ff: width of the hidden layer of the feed-forward network."""
    dropout: Share = 0.1
    """Dropout on embeddings and on the output of each sub-layer, as in the paper."""
    norm: Literal["post", "pre"] = "post"
    """Position of the layer norm: after the residual sum (post, as in the paper) or before each sub-layer (pre)."""
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "relu"
    """Non-linearity of the feed-forward network."""
    positional_encoding: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    """Positional encoding: how the model knows the order of the tokens."""

    def check(self) -> None:
        wrong = f"model.width {self.width} is not a multiple of model.heads {self.heads}; change one of them"
        require(self.width % self.heads == 0, wrong)
        self.check_rotary()

    def check_rotary(self) -> None:
        """Raise an error if rotary encoding, which rotates pairs of dimensions, is used with an odd head width."""
        require(
            self.positional_encoding != "rotary" or self.head_size % 2 == 0,
            f'model.positional_encoding = "rotary" needs an even head width, not {self.head_size}; change model.heads',
        )

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    def heads_in(self, attention: str) -> int:
        """Number of heads of the attention layer with the name `attention`, e.g. "encoder.0.self"."""
        return self.heads


@dataclass(frozen=True)
class ExpertSettings(ModelSettings):
    """Base class of the settings of models that may have a mixture of experts (Shazeer et al. 2017)."""

    experts: Annotated[int, Range(0, 65_536)] = 0
    """Number of experts in each layer with experts; 0: no layer has experts."""
    active_experts: Count = 2
    """Number of experts that compute each token; with 1, only the balance losses train the gate."""
    expert_capacity: NotNegative = 2.0
    """Largest share of the tokens of a training batch per expert, in equal shares; the rest is dropped; 0: no limit."""
    importance_weight: NotNegative = 0.1
    """Weight of the loss that makes the sums of the gate values of all experts equal."""
    load_weight: NotNegative = 0.1
    """Weight of the loss that makes the numbers of tokens of all experts equal."""

    def check(self) -> None:
        super().check()
        self.check_experts()

    def check_experts(self) -> None:
        """Raise an error if more experts are active than there are."""
        require(
            not self.experts or self.active_experts <= self.experts,
            f"model.active_experts = {self.active_experts} is more than model.experts = {self.experts}",
        )


@dataclass(frozen=True)
class ExpertBlockSettings(ExpertSettings):
    """Base class of the settings of models in which experts replace the feed-forward networks of some blocks."""

    expert_every: Count = 2
    """Which blocks have experts: every second one (2), all (1), and so on; the first is the block of this number."""

    def experts_in(self, block: str) -> int:
        """Number of experts of the block with the name `block`, e.g. "encoder.1"; 0 for a feed-forward network."""
        number = int(block.rpartition(".")[2]) + 1
        return 0 if number % self.expert_every else self.experts

    def check_experts(self) -> None:
        super().check_experts()
        most = max(self.depths)
        require(
            not self.experts or self.expert_every <= most,
            f"model.expert_every = {self.expert_every}: no block has experts, because there are only {most} blocks",
        )

    @property
    def depths(self) -> tuple[int, ...]:
        """Number of blocks of each stack of blocks."""
        raise NotImplementedError

    def active_inner(self, ffn_width: int) -> int:
        """Sum of the inner widths, over all blocks, that a token is computed with; `ffn_width`: that of one network."""
        blocks, chosen = sum(self.depths), sum(depth // self.expert_every for depth in self.depths)
        return ffn_width * (blocks + (chosen * (self.active_experts - 1) if self.experts else 0))


@dataclass(frozen=True)
class EncoderSettings(BlockSettings):
    """Base class of the settings of models with a stack of Transformer encoder blocks."""

    encoder_layers: Annotated[int, Range(0, 256)] = 6
    """Number of encoder blocks."""

    def kept_per_token(self, length: float) -> float:
        return ACTIVATIONS_PER_UNIT * max(self.encoder_layers, 1) * self.width


@dataclass(frozen=True)
class SmallEncoderSettings(EncoderSettings):
    """Base class of settings with defaults for small data: narrow, pre-norm, GELU, more dropout than in the paper."""

    width: EvenWidth = 128
    heads: Count = 4
    ffn_width: Width = 256
    dropout: Share = 0.3
    norm: Literal["post", "pre"] = "pre"
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "gelu"
    positional_encoding: Literal["sinusoidal", "rotary", "none"] = "sinusoidal"


@dataclass(frozen=True)
class TransformerSettings(ExpertBlockSettings, EncoderSettings):
    """Settings of the Transformer (Vaswani et al. 2017). Presets transformer-base and -big have the paper's sizes."""

    kind: ClassVar[str] = "seq2seq"
    network: ClassVar[str] = "regard.models.transformer.Transformer"
    about: ClassVar[str] = "Attention Is All You Need (Vaswani et al. 2017)"

    arch: str = "transformer-base"
    encoder_layers: Layers = 6
    decoder_layers: Layers = 6
    """Number of decoder blocks."""
    head_width: Annotated[int, Range(0, 65_536)] = 0
    """Width of one attention head; 0 means width / heads."""
    word_dropout: Share = 0.0
    """Share of the source and target tokens whose whole embedding is set to zero in training."""
    position_mode: Literal["add", "concatenate"] = "add"
    """Whether positional encodings are added to the token embeddings, or concatenated with them (width / 4 wide)."""
    max_positions: Count = 512
    """Maximum number of tokens of a sentence with learned positional encodings."""
    attention_window: Annotated[int, Range(0)] = 0
    """Number of neighbors that a token attends to in the encoder's self-attention; 0 means all tokens."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Embeddings that share one matrix: source, target and output (all); target and output (target); none."""
    output_bias: bool = False
    """Whether the output layer has a bias, as in published Marian models."""
    remaining_heads: tuple[tuple[str, int], ...] = ()
    """Number of heads after pruning, e.g. [["encoder.0.self", 2]]; layers that are not listed have all heads."""

    def check(self) -> None:
        require(
            self.head_width > 0 or self.width % self.heads == 0,
            f"model.width {self.width} is not a multiple of model.heads {self.heads}; or set model.head_width",
        )
        self.check_rotary()
        self.check_experts()
        for place, (name, count) in enumerate(self.remaining_heads):
            guess = nearest(name, self.attentions) or '; a valid name is "encoder.0.self"'
            require(name in self.attentions, f'model.remaining_heads: there is no attention layer "{name}"{guess}')
            require(0 <= count <= self.heads, f"model.remaining_heads: {name}: choose 0 to {self.heads} heads")
            require(name not in dict(self.remaining_heads[:place]), f"model.remaining_heads: list {name} only once")

    @property
    def depths(self) -> tuple[int, ...]:
        return self.encoder_layers, self.decoder_layers

    @property
    def attentions(self) -> tuple[str, ...]:
        """The names of all attention layers in order, e.g. "encoder.0.self" and "decoder.0.cross"."""
        encoder = [f"encoder.{layer}.self" for layer in range(self.encoder_layers)]
        kinds = ("self", "cross")
        return (*encoder, *(f"decoder.{layer}.{kind}" for layer in range(self.decoder_layers) for kind in kinds))

    @property
    def head_size(self) -> int:
        return self.head_width or self.width // self.heads

    @property
    def needs_joint_vocabulary(self) -> bool:
        return self.tie_embeddings == "all"

    def paper(self) -> str:
        return f"{self.about}, with {EXPERTS_PAPER}" if self.experts else self.about

    def heads_in(self, attention: str) -> int:
        return dict(self.remaining_heads).get(attention, self.heads)

    def kept_per_token(self, length: float) -> float:
        """How many activations are stored for the backward pass, for one source token and one target token together.

        These are the inputs of layers and the dropout masks.
        """
        inner = 2 * self.active_inner(self.ffn_width)
        return inner + self.width * (10 * self.encoder_layers + 18 * self.decoder_layers + 4)


@dataclass(frozen=True)
class TextEncoderSettings(SmallEncoderSettings):
    """Settings of a text encoder: one vector per question or answer; similar texts get similar vectors."""

    kind: ClassVar[str] = "text-encoder"
    network: ClassVar[str] = "regard.models.pooled_encoders.TextEncoder"
    has_encoder: ClassVar[bool] = True
    about: ClassVar[str] = "a Siamese encoder as in Sentence-BERT (Reimers and Gurevych 2019), with in-batch negatives"

    arch: str = "text-encoder"
    encoder_layers: Annotated[int, Range(0, 256)] = 0
    """Number of encoder blocks; with 0, the token embeddings are pooled directly, which is best for small data."""
    width: EvenWidth = 256
    ffn_width: Width = 512
    dropout: Share = 0.3
    """Dropout on embeddings, on the output of each sub-layer and on the pooled vector."""
    positional_encoding: Literal["sinusoidal", "rotary", "none"] = "none"
    pool: Literal["attention", "mean"] = "mean"
    """How the token states of a text are pooled into one vector: attention with a learned query, or the mean."""
    vector_size: Annotated[int, Range(2, 65_536)] = 256
    """Width of the text vector."""


PRESETS: dict[str, ModelSettings] = {
    "transformer-tiny": TransformerSettings(
        "transformer-tiny",
        encoder_layers=4,
        decoder_layers=4,
        width=128,
        heads=4,
        ffn_width=256,
        dropout=0.3,
        norm="pre",
    ),
    "transformer-mini": TransformerSettings(
        "transformer-mini",
        encoder_layers=3,
        decoder_layers=3,
        width=192,
        heads=4,
        ffn_width=512,
        dropout=0.3,
        norm="pre",
    ),
    "transformer-small": TransformerSettings(
        "transformer-small", encoder_layers=3, decoder_layers=3, width=256, heads=4, ffn_width=1024
    ),
    "transformer-base": TransformerSettings("transformer-base"),
    "transformer-big": TransformerSettings("transformer-big", width=1024, heads=16, ffn_width=4096, dropout=0.3),
    "transformer-moe": TransformerSettings(
        "transformer-moe",
        encoder_layers=4,
        decoder_layers=4,
        width=192,
        heads=4,
        ffn_width=384,
        dropout=0.3,
        norm="pre",
        experts=8,
    ),
    "text-encoder": TextEncoderSettings("text-encoder"),
}
