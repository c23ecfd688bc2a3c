"""The Transformer: "Attention Is All You Need", Vaswani et al. 2017.

Departures from the paper, all optional: pre-norm, which trains without a long warm-up; GELU, Swish and SwiGLU instead
of ReLU; learned, rotary or no positional encodings; encodings concatenated instead of added; local (sliding-window)
self-attention in the encoder; encoder and decoder of different depth; a mixture of experts as the feed-forward network
of some blocks (Shazeer et al. 2017; `layers/experts.py`); after pruning, attention layers with fewer heads or without
heads. Dropout is as in section 5.4 of the paper: on the embeddings and on the output of each sub-layer, not
on the attention weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.layers.attention import CrossAttention, KeyValue, SelfAttention
from regard.layers.auxiliary import target_mask
from regard.layers.dropout import Dropout
from regard.layers.experts import MixtureOfExperts, activate
from regard.layers.hooks import HiddenStateHook
from regard.layers.init import glorot
from regard.layers.inputs import Frames, Input, Pictures, input_layer
from regard.layers.kv_cache import KVCache
from regard.layers.positional_encoding import RotaryEncoding, RotaryGridEncoding, position_layer
from regard.models.base import EncoderOutput, LayerStack, Seq2Seq, Source, grid_of, mask_or_none
from regard.models.transformer_settings import (
    BlockSettings,
    EncoderSettings,
    ExpertBlockSettings,
    TransformerSettings,
)

Grid = tuple[int, int] | None
"""Rows and columns of the patches of a picture; None if positions have one dimension."""


class FeedForward(nn.Module):
    """The feed-forward network of a block: two linear maps with an activation function between them.

    `inner`: width between the two maps. `activation`: "relu", "gelu", "swish" or "swiglu".
    """

    def __init__(self, width: int, inner: int, activation: str):
        super().__init__()
        self.activation = activation
        parts = 2 if activation == "swiglu" else 1
        self.up = glorot(nn.Linear(width, parts * inner), parts)
        self.down = glorot(nn.Linear(inner, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The mask, which experts need, is not read."""
        return self.down(activate(self.up(x), self.activation))


def _feed_forward(settings: BlockSettings, name: str) -> FeedForward | MixtureOfExperts:
    """The feed-forward network or the experts of the block with this name, e.g. "encoder.0"."""
    width, inner, activation = settings.width, settings.ffn_width, settings.activation
    if isinstance(settings, ExpertBlockSettings) and settings.experts_in(name):
        return MixtureOfExperts(settings, width, inner, activation, f"{name}.experts")
    return FeedForward(width, inner, activation)


class Residual(nn.Module):
    """Residual connection and norm of a sub-layer f: norm(x + drop(f(x))) or, with pre-norm, x + drop(f(norm(x))).

    `enter(x)` returns the input of f; `leave(x, update)` returns the result, where `update` is the output of f.
    """

    def __init__(self, settings: BlockSettings):
        super().__init__()
        self.before = settings.norm == "pre"
        self.norm = nn.LayerNorm(settings.width)
        self.drop = Dropout(settings.dropout)

    def enter(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.before else x

    def leave(self, x: Tensor, update: Tensor) -> Tensor:
        x = x + self.drop(update)
        return x if self.before else self.norm(x)


def zero_init_residual(model: nn.Module) -> None:
    """Set the last projection of every sub-layer to zero, so that every block is the identity before training.

    With pre-norm, a small corpus is then learned in fewer steps (docs/log.md).
    """
    for part in model.modules():
        if isinstance(part, SelfAttention | CrossAttention | FeedForward | MixtureOfExperts):
            last = part.down if isinstance(part, FeedForward | MixtureOfExperts) else part.out
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)


class FullyPrunedAttention(nn.Module):
    """Replaces self- or cross-attention whose heads are all pruned: for any input, the output is a learned bias."""

    def __init__(self, width: int):
        super().__init__()
        self.out = nn.ParameterDict({"bias": torch.zeros(width)})

    def forward(self, x: Tensor, *seen: object) -> Tensor:
        return self.out["bias"].expand_as(x)

    def project(self, memory_BSD: Tensor) -> tuple[()]:
        return ()

    def start(self, rows: int, width: int) -> KVCache:
        """An empty KV cache of head width 1, which only counts tokens: `rows` sentences, `width` hypotheses each."""
        empty = self.out["bias"].new_zeros(rows, width, 1, 0, 1)
        return KVCache(empty, empty)

    def step(self, x_BWD: Tensor, cache: KVCache) -> tuple[Tensor, KVCache]:
        return self(x_BWD), cache.add(x_BWD.new_zeros(*x_BWD.shape[:2], 2, 1, 1))


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward: a layer of the encoder or, if `causal`, of a language model.

    `name` is the prefix of its hook's name, e.g. "encoder.0". `grid`: rows and columns of a picture, for positions.
    """

    def __init__(self, settings: BlockSettings, name: str, *, causal: bool = False, grid: Grid = None):
        super().__init__()
        self.causal = causal
        self.self_attention = _self_attention(settings, name, causal, grid)
        self.feed_forward = _feed_forward(settings, name)
        self.self_attention_residual, self.feed_forward_residual = Residual(settings), Residual(settings)

    def forward(self, x_BSD: Tensor, mask_BS: Tensor | None = None) -> Tensor:
        update = self.self_attention(self.self_attention_residual.enter(x_BSD), mask_BS)
        x_BSD = self.self_attention_residual.leave(x_BSD, update)
        update = self.feed_forward(self.feed_forward_residual.enter(x_BSD), target_mask() if self.causal else mask_BS)
        return self.feed_forward_residual.leave(x_BSD, update)

    def step(self, x_BWD: Tensor, cache: KVCache) -> tuple[Tensor, KVCache]:
        update, cache = self.self_attention.step(self.self_attention_residual.enter(x_BWD), cache)
        x_BWD = self.self_attention_residual.leave(x_BWD, update)
        update = self.feed_forward(self.feed_forward_residual.enter(x_BWD))
        return self.feed_forward_residual.leave(x_BWD, update), cache


SourceKV = KeyValue | tuple[()]
"""Keys and values of the source in a decoder layer; empty for a layer without heads."""


class DecoderBlock(nn.Module):
    """A decoder layer: causal self-attention, cross-attention to the source, then feed-forward.

    `name` is the prefix of the names of its hooks, e.g. "decoder.0".
    """

    def __init__(self, settings: BlockSettings, name: str):
        super().__init__()
        self.self_attention = _self_attention(settings, name, causal=True)
        heads = settings.heads_in(f"{name}.cross")
        self.cross_attention = (
            CrossAttention(settings.width, heads, settings.head_size, f"{name}.cross")
            if heads
            else FullyPrunedAttention(settings.width)
        )
        self.feed_forward = _feed_forward(settings, name)
        self.self_attention_residual = Residual(settings)
        self.cross_attention_residual = Residual(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(self, x_BTD: Tensor, memory: SourceKV, mask_BS: Tensor | None) -> Tensor:
        update = self.self_attention(self.self_attention_residual.enter(x_BTD))
        x_BTD = self.self_attention_residual.leave(x_BTD, update)
        return self._attend_and_feed(x_BTD, memory, mask_BS, target_mask())

    def step(self, x_BWD: Tensor, cache: KVCache, memory: SourceKV, mask_BS: Tensor | None) -> tuple[Tensor, KVCache]:
        update, cache = self.self_attention.step(self.self_attention_residual.enter(x_BWD), cache)
        return self._attend_and_feed(self.self_attention_residual.leave(x_BWD, update), memory, mask_BS), cache

    def _attend_and_feed(
        self, x: Tensor, memory: SourceKV, mask_BS: Tensor | None, mask_BT: Tensor | None = None
    ) -> Tensor:
        update = self.cross_attention(self.cross_attention_residual.enter(x), memory, mask_BS)
        x = self.cross_attention_residual.leave(x, update)
        update = self.feed_forward(self.feed_forward_residual.enter(x), mask_BT)
        return self.feed_forward_residual.leave(x, update)


def _self_attention(
    settings: BlockSettings, name: str, causal: bool, grid: Grid = None
) -> SelfAttention | FullyPrunedAttention:
    heads = settings.heads_in(f"{name}.self")
    if not heads:
        return FullyPrunedAttention(settings.width)
    rotary = None
    if settings.positional_encoding == "rotary":
        rotary = RotaryGridEncoding(settings.head_size, grid) if grid else RotaryEncoding(settings.head_size)
    return SelfAttention(
        settings.width,
        heads,
        settings.head_size,
        f"{name}.self",
        causal=causal,
        window=settings.attention_window if isinstance(settings, TransformerSettings) and not causal else 0,
        rotary=rotary,
    )


class Embedding(nn.Module):
    """Token embeddings times sqrt(width), with positional encoding (the layer `positions`) and dropout.

    `word_dropout`: share of the tokens whose whole embedding is set to zero in training.
    """

    def __init__(self, vocabulary: int, settings: BlockSettings, positions: nn.Module, word_dropout: float = 0.0):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, settings.width)
        nn.init.normal_(self.tokens.weight, std=settings.width**-0.5)
        self.scale = math.sqrt(settings.width)
        self.positions = positions
        self.drop = Dropout(settings.dropout)
        self.hide = Dropout(word_dropout)

    def forward(self, ids_BT: Tensor, start: int = 0) -> Tensor:
        """Embed tokens: vectors [B, T, D] of sequences whose first token is at position `start`."""
        x_BTD = self.tokens(ids_BT) * self.scale
        if self.training and self.hide.dropped:
            x_BTD = x_BTD * self.hide(x_BTD.new_ones(*ids_BT.shape, 1))  # drops whole tokens
        return self.drop(self.positions(x_BTD, start))


class VectorEmbedding(nn.Module):
    """Vectors of frames or pictures (layers/inputs.py), with positional encoding and dropout, as in `Embedding`."""

    def __init__(self, source: Frames | Pictures, settings: BlockSettings, positions: nn.Module):
        super().__init__()
        self.input = input_layer(source, settings.width)
        self.positions = positions
        self.drop = Dropout(settings.dropout)

    def forward(self, values: Tensor) -> Tensor:
        return self.drop(self.positions(self.input(values)))


def source_embedding(source: Input, settings: BlockSettings, positions: nn.Module) -> Embedding | VectorEmbedding:
    """The layer below the encoder blocks, for tokens, frames or pictures."""
    if isinstance(source, int):
        return Embedding(source, settings, positions)
    return VectorEmbedding(source, settings, positions)


def _embedding_with_positions(settings: TransformerSettings, source: Input) -> Embedding | VectorEmbedding:
    positions = position_layer(
        settings.positional_encoding, settings.position_mode, settings.width, settings.max_positions, grid_of(source)
    )
    if isinstance(source, int):
        return Embedding(source, settings, positions, settings.word_dropout)
    return VectorEmbedding(source, settings, positions)


def last_norm(settings: BlockSettings) -> nn.Module:
    """The layer norm after the last block of a pre-norm model; for post-norm, a layer that changes nothing."""
    return nn.LayerNorm(settings.width) if settings.norm == "pre" else nn.Identity()


class Encoder(nn.Module):
    """Embedding and encoder blocks: the encoder of a Transformer, a classifier or a text encoder."""

    def __init__(self, embed: Embedding | VectorEmbedding, settings: EncoderSettings, grid: Grid = None):
        super().__init__()
        self.embed = embed
        self.blocks = LayerStack(
            EncoderBlock(settings, f"encoder.{layer}", grid=grid) for layer in range(settings.encoder_layers)
        )
        self.norm = last_norm(settings)
        self.stream = HiddenStateHook("encoder")

    def forward(self, source: Source) -> EncoderOutput:
        mask_BS = mask_or_none(source.mask_BS)
        x_BSD = self.stream.see("embed", self.embed(source.ids_BS))
        for layer, block in enumerate(self.blocks):
            x_BSD = self.stream.see(layer, block(x_BSD, mask_BS))
        return EncoderOutput(self.stream.see("top", self.norm(x_BSD)), source.mask_BS)


class State(NamedTuple):
    """The state of a Transformer decoder during a search: the KV cache of each layer."""

    caches: tuple[KVCache, ...]


class Transformer(Seq2Seq):
    """The Transformer network: encoder, decoder, output layer.

    Without source tokens, `tie_embeddings = "all"` ties the embeddings of the target and the output layer.
    """

    reads_vectors = True

    def __init__(self, settings: TransformerSettings, source_vocabulary: Input, target_vocabulary: int):
        super().__init__()
        self.reads = source_vocabulary
        embed_source = _embedding_with_positions(settings, source_vocabulary)
        shared = settings.tie_embeddings == "all" and isinstance(embed_source, Embedding)
        embed_target = embed_source if shared else _embedding_with_positions(settings, target_vocabulary)
        assert isinstance(embed_target, Embedding)
        self.encoder = Encoder(embed_source, settings, grid_of(source_vocabulary))
        self.embed = embed_target
        self.decoder = LayerStack(
            DecoderBlock(settings, f"decoder.{layer}") for layer in range(settings.decoder_layers)
        )
        self.norm = last_norm(settings)
        self.output = nn.Linear(settings.width, target_vocabulary, bias=settings.output_bias)
        nn.init.normal_(self.output.weight, std=settings.width**-0.5)
        if settings.output_bias:
            nn.init.zeros_(self.output.bias)
        if settings.tie_embeddings != "none":
            self.output.weight = embed_target.tokens.weight
        self.stream = HiddenStateHook("decoder")

    def encode(self, source: Source) -> EncoderOutput:
        """Encode the source: returns encoder states and, in `extra`, their keys and values for every decoder layer."""
        memory: EncoderOutput = self.encoder(source)
        return memory._replace(extra=tuple(block.cross_attention.project(memory.states_BSD) for block in self.decoder))

    def start(self, memory: EncoderOutput) -> State:
        return State(tuple(block.self_attention.start(memory.states_BSD.shape[0], 1) for block in self.decoder))

    def step(self, token_BW: Tensor, state: State, memory: EncoderOutput) -> tuple[Tensor, State]:
        position = state.caches[0].length  # of the tokens of all hypotheses
        x_BWD = self.embed(token_BW.flatten()[:, None], position).view(*token_BW.shape, -1)
        x_BWD = self.stream.see("embed", x_BWD)
        mask_BS = mask_or_none(memory.mask_BS)
        caches = []
        for layer, (block, cache, seen) in enumerate(zip(self.decoder, state.caches, memory.extra, strict=True)):
            x_BWD, cache = block.step(x_BWD, cache, seen, mask_BS)
            x_BWD = self.stream.see(layer, x_BWD)
            caches.append(cache)
        return self.output(self.stream.see("top", self.norm(x_BWD))), State(tuple(caches))

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        mask_BS = mask_or_none(memory.mask_BS)
        x_BTD = self.stream.see("embed", self.embed(target_BT))
        for layer, (block, seen) in enumerate(zip(self.decoder, memory.extra, strict=True)):
            x_BTD = self.stream.see(layer, block(x_BTD, seen, mask_BS))
        return self.stream.see("top", self.norm(x_BTD))
