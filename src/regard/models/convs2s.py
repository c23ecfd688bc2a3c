"""ConvS2S: "Convolutional Sequence to Sequence Learning", Gehring et al. 2017.

Encoder and decoder are stacks of convolutions with gated linear units and residual connections. Every decoder layer
has its own attention to the source: the keys are the encoder outputs z, the values are z + e, where e are the
embeddings of the source tokens with their positions. All layers but the embeddings have weight normalization.

Where the paper leaves a choice, this file follows the authors' published code: every sum of two terms is multiplied by
sqrt(0.5), also z + e, the query and the context; a linear layer maps the context to the width of the layer; another
linear layer is in the residual connection where the width changes.

Departures: the output layer has no weight normalization, because the loss reads its matrix; embeddings may be tied;
the gradients of the encoder are scaled in training only, so that analysis gets true gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import ModelSettings
from regard.config.ranges import Count, Layers, Range, Share, Width, require
from regard.layers.attention import DOT, KeyValue, attend
from regard.layers.convolution import WeightNormLinear, next_window, no_inputs, no_tokens, one_more_token, windows
from regard.layers.dropout import Dropout
from regard.layers.hooks import AttentionHook, HiddenStateHook
from regard.layers.init import stack
from regard.layers.positional_encoding import LearnedEncoding
from regard.models.base import EncoderOutput, LayerStack, Seq2Seq, Source, mask_or_none

HALF = math.sqrt(0.5)
"""The factor of a sum of two terms, which keeps the variance of its terms (section 3.4)."""
MOST_LAYERS = 256
"""The maximum number of layers in a group."""


class Shape(NamedTuple):
    """Sizes of one convolutional layer: width of its input, width of its output, kernel width."""

    inputs: int
    width: int
    kernel: int


@dataclass(frozen=True)
class ConvS2SSettings(ModelSettings):
    """Settings of ConvS2S (Gehring et al. 2017): convolutions, and attention in every decoder layer."""

    kind: ClassVar[str] = "seq2seq"
    network: ClassVar[str] = "ConvS2S"
    about: ClassVar[str] = "Convolutional Sequence to Sequence Learning (Gehring et al. 2017)"

    arch: str = "convs2s"
    encoder_layers: Layers = 4
    """Number of encoder layers."""
    decoder_layers: Layers = 4
    """Number of decoder layers."""
    width: Width = 512
    """Number of hidden units of every layer."""
    kernel: Annotated[int, Range(1, 255)] = 3
    """Kernel width of every layer: the number of tokens that a convolution reads; odd."""
    encoder_groups: tuple[tuple[int, int, int], ...] = ()
    """Encoder layers as groups [number, width, kernel], e.g. [[9, 512, 3], [2, 2048, 1]]; if empty, all are equal."""
    decoder_groups: tuple[tuple[int, int, int], ...] = ()
    """Decoder layers as groups, like encoder_groups."""
    embedding_width: Width = 512
    """Width of the token embeddings, of the encoder outputs and of the attention."""
    output_width: Annotated[int, Range(0, 65_536)] = 0
    """Width of the states before the output layer; 0 means embedding_width."""
    max_positions: Count = 1024
    """Number of learned positions: the maximum number of tokens of a sentence."""
    dropout: Share = 0.2
    """Dropout on the embeddings, on the input of every convolution and on the decoder output."""
    tie_embeddings: Literal["all", "target", "none"] = "none"
    """Embeddings that share one matrix: source, target and output (all); target and output (target); none."""

    def check(self) -> None:
        for side in ("encoder", "decoder"):
            for _, width, kernel in self._shapes(side):
                require(kernel > 0 and kernel % 2 == 1, f"model.kernel must be an odd number, not {kernel} ({side})")
                require(0 < width <= 65_536, f"model.{side}_groups: a layer cannot be {width} units wide")
            groups = getattr(self, f"{side}_groups")
            require(
                all(0 < number <= MOST_LAYERS for number, _, _ in groups),
                f"model.{side}_groups: a group needs at least one layer and at most {MOST_LAYERS}",
            )
        require(
            self.tie_embeddings == "none" or self.last_width == self.embedding_width,
            'model.tie_embeddings needs model.output_width = 0; or set model.tie_embeddings = "none"',
        )

    @property
    def needs_joint_vocabulary(self) -> bool:
        return self.tie_embeddings == "all"

    @property
    def last_width(self) -> int:
        return self.output_width or self.embedding_width

    @property
    def keep(self) -> float:
        """The share of elements that dropout keeps, p in the paper."""
        return 1.0 - self.dropout

    def encoder_shapes(self) -> list[Shape]:
        return list(self._shapes("encoder"))

    def decoder_shapes(self) -> list[Shape]:
        return list(self._shapes("decoder"))

    def _shapes(self, side: str) -> Iterator[Shape]:
        equal = ((getattr(self, f"{side}_layers"), self.width, self.kernel),)
        groups = getattr(self, f"{side}_groups") or equal
        inputs = groups[0][1]
        for number, width, kernel in groups:
            for _ in range(number):
                yield Shape(inputs, width, kernel)
                inputs = width

    def kept_per_token(self, length: float) -> float:
        """How many numbers the backward pass needs per source and target token: windows, gates, attention."""
        both = (*self.encoder_shapes(), *self.decoder_shapes())
        layers = sum(shape.kernel * shape.inputs + 3 * shape.width for shape in both)
        attention = sum(shape.width + 4 * self.embedding_width for shape in self.decoder_shapes())
        return layers + attention + 4 * self.embedding_width


PRESETS: dict[str, ModelSettings] = {"convs2s": ConvS2SSettings("convs2s")}


class PositionedEmbedding(nn.Module):
    """Embeddings of tokens plus embeddings of their absolute positions (section 3.1), with dropout."""

    scale = 1.0  # of the token embeddings, which analysis reads from every embedding layer

    def __init__(self, tokens: nn.Embedding, settings: ConvS2SSettings):
        super().__init__()
        self.tokens = tokens
        self.positions = LearnedEncoding(settings.embedding_width, settings.max_positions)
        nn.init.normal_(self.positions.embed.weight, std=0.1)
        self.drop = Dropout(settings.dropout)

    def forward(self, ids_BT: Tensor, start: int = 0) -> Tensor:
        """Vectors [B, T, E] of a sequence whose first token is at position `start`."""
        return self.drop(self.tokens(ids_BT) + self.positions(ids_BT.shape[1], start))


def _token_embedding(vocabulary: int, width: int) -> nn.Embedding:
    tokens = nn.Embedding(vocabulary, width)
    nn.init.normal_(tokens.weight, std=0.1)
    return tokens


def _gate(x: Tensor) -> Tensor:
    """A gated linear unit. (PyTorch's own is slow, with a warning, in the Jacobians that analysis computes.)"""
    a, b = x.chunk(2, dim=-1)
    return a * torch.sigmoid(b)


class ConvLayer(nn.Module):
    """A convolution with dropout on its input, and a gated linear unit; `shortcut` is the residual connection."""

    def __init__(self, shape: Shape, settings: ConvS2SSettings, *, causal: bool):
        super().__init__()
        self.kernel, self.causal = shape.kernel, causal
        self.drop = Dropout(settings.dropout)
        # A gated linear unit halves the standard deviation, dropout increases it: section 3.5.
        conv = WeightNormLinear(shape.kernel * shape.inputs, 2 * shape.width, variance=4 * settings.keep)
        self.conv = stack(conv, 2)
        self.shortcut = (
            WeightNormLinear(shape.inputs, shape.width) if shape.inputs != shape.width else nn.Identity()
        )  # the linear layer is from the authors' code

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The output of the gated linear unit at every position, without the residual connection."""
        return _gate(self.conv(windows(self.drop(x_BTD), self.kernel, causal=self.causal)))

    def start(self, rows: int) -> Tensor:
        return no_inputs(rows, self.kernel, 1, self.conv.weight)

    def step(self, x_BWD: Tensor, past_BWRD: Tensor) -> tuple[Tensor, Tensor]:
        window_BWN, past_BWRD = next_window(x_BWD, past_BWRD)
        return _gate(self.conv(window_BWN)), past_BWRD


class SourceMemory(NamedTuple):
    """Input of the attention: keys z, values (z + e) sqrt(0.5), and sqrt(m), the factor of contexts of m tokens."""

    source: KeyValue
    scale_B11: Tensor


class MultiStepAttention(nn.Module):
    """Attention of one decoder layer (section 3.3): the query combines its state with the previous target embedding."""

    def __init__(self, width: int, embedding_width: int, name: str):
        super().__init__()
        self.query = WeightNormLinear(width, embedding_width)
        self.out = WeightNormLinear(embedding_width, width)
        self.tap = AttentionHook(name)

    def forward(self, h_BTD: Tensor, embedded_BTE: Tensor, memory: SourceMemory, mask_BS: Tensor | None) -> Tensor:
        """Add the context vectors to decoder states: of T positions in training, of T hypotheses in a search."""
        query = ((self.query(h_BTD) + embedded_BTE) * HALF).unsqueeze(1)
        key, value = (part.unsqueeze(1) for part in memory.source)  # one head
        mask = None if mask_BS is None else mask_BS[:, None, None, :]
        context_BTE = attend(query, key, value, mask, score=DOT, tap=self.tap).squeeze(1) * memory.scale_B11
        return (h_BTD + self.out(context_BTE)) * HALF


class ConvEncoder(nn.Module):
    """Embedding and convolutions. Padding is set to zero before every layer, so that no token reads it."""

    def __init__(self, tokens: nn.Embedding, settings: ConvS2SSettings):
        super().__init__()
        shapes = settings.encoder_shapes()
        self.embed = PositionedEmbedding(tokens, settings)
        self.enter = WeightNormLinear(settings.embedding_width, shapes[0].inputs, settings.keep)
        self.layers = LayerStack(ConvLayer(shape, settings, causal=False) for shape in shapes)
        self.leave = WeightNormLinear(shapes[-1].width, settings.embedding_width)
        self.attentions = len(settings.decoder_shapes())
        self.stream = HiddenStateHook("encoder")

    def forward(self, source: Source) -> EncoderOutput:
        mask_BS = mask_or_none(source.mask_BS)
        embedded_BSE = self.stream.see("embed", self.embed(source.ids_BS))
        x_BSD = self.enter(embedded_BSE)
        real_BS1 = None if mask_BS is None else mask_BS.unsqueeze(-1).to(x_BSD)  # dtype and device
        for number, layer in enumerate(self.layers):
            x_BSD = x_BSD if real_BS1 is None else x_BSD * real_BS1
            x_BSD = self.stream.see(number, (layer(x_BSD) + layer.shortcut(x_BSD)) * HALF)
        z_BSE = self.leave(x_BSD)
        if self.training and z_BSE.requires_grad:  # the decoder's gradients arrive from every attention: section 3.4
            z_BSE.register_hook(lambda gradient: gradient / self.attentions)
        z_BSE = self.stream.see("top", z_BSE)
        scale_B11 = source.mask_BS.sum(1).to(z_BSE).sqrt()[:, None, None]
        memory = SourceMemory(KeyValue(z_BSE, (z_BSE + embedded_BSE) * HALF), scale_B11)
        return EncoderOutput(z_BSE, source.mask_BS, memory)


class State(NamedTuple):
    """The decoder state: the number of tokens read, and the last kernel - 1 inputs of each layer."""

    read_BWT0: Tensor
    """No elements: only T is used, the number of tokens."""
    past: tuple[Tensor, ...]


class ConvS2S(Seq2Seq):
    """The ConvS2S network: convolutional encoder, and convolutional decoder with attention in every layer."""

    attention_formula: ClassVar[str] = "softmax(Q Kᵀ)"

    def __init__(self, settings: ConvS2SSettings, source_vocabulary: int, target_vocabulary: int):
        super().__init__()
        width, shapes = settings.embedding_width, settings.decoder_shapes()
        source_tokens = _token_embedding(source_vocabulary, width)
        tied = settings.tie_embeddings == "all"
        self.encoder = ConvEncoder(source_tokens, settings)
        self.embed = PositionedEmbedding(
            source_tokens if tied else _token_embedding(target_vocabulary, width), settings
        )
        self.enter = WeightNormLinear(width, shapes[0].inputs, settings.keep)
        self.decoder = LayerStack(ConvLayer(shape, settings, causal=True) for shape in shapes)
        self.attention = LayerStack(
            MultiStepAttention(shape.width, width, f"decoder.{layer}.cross") for layer, shape in enumerate(shapes)
        )
        self.leave = WeightNormLinear(shapes[-1].width, settings.last_width)
        self.drop = Dropout(settings.dropout)
        self.output = nn.Linear(settings.last_width, target_vocabulary)
        nn.init.normal_(self.output.weight, std=math.sqrt(settings.keep / settings.last_width))
        nn.init.zeros_(self.output.bias)
        if settings.tie_embeddings != "none":
            self.output.weight = self.embed.tokens.weight
        self.stream = HiddenStateHook("decoder")

    def encode(self, source: Source) -> EncoderOutput:
        memory: EncoderOutput = self.encoder(source)
        return memory

    def start(self, memory: EncoderOutput) -> State:
        rows = memory.states_BSD.shape[0]
        return State(no_tokens(memory.states_BSD), tuple(layer.start(rows) for layer in self.decoder))

    def step(self, token_BW: Tensor, state: State, memory: EncoderOutput) -> tuple[Tensor, State]:
        embedded_BWE = self.embed(token_BW.flatten()[:, None], state.read_BWT0.shape[2]).view(*token_BW.shape, -1)
        embedded_BWE = self.stream.see("embed", embedded_BWE)
        x_BWD, mask_BS, past = self.enter(embedded_BWE), mask_or_none(memory.mask_BS), []
        for number, (layer, attention) in enumerate(zip(self.decoder, self.attention, strict=True)):
            h_BWD, inputs_BWRD = layer.step(x_BWD, state.past[number])
            h_BWD = attention(h_BWD, embedded_BWE, memory.extra, mask_BS)
            x_BWD = self.stream.see(number, (h_BWD + layer.shortcut(x_BWD)) * HALF)
            past.append(inputs_BWRD)
        top_BWD = self.stream.see("top", self.leave(x_BWD))
        return self.output(top_BWD), State(one_more_token(state.read_BWT0), tuple(past))

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        mask_BS = mask_or_none(memory.mask_BS)
        embedded_BTE = self.stream.see("embed", self.embed(target_BT))
        x_BTD = self.enter(embedded_BTE)
        for number, (layer, attention) in enumerate(zip(self.decoder, self.attention, strict=True)):
            h_BTD = attention(layer(x_BTD), embedded_BTE, memory.extra, mask_BS)
            x_BTD = self.stream.see(number, (h_BTD + layer.shortcut(x_BTD)) * HALF)
        return self.drop(self.stream.see("top", self.leave(x_BTD)))
