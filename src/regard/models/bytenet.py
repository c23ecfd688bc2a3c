"""ByteNet: "Neural Machine Translation in Linear Time", Kalchbrenner et al. 2016, the network for translation.

Encoder and decoder are stacks of residual blocks with dilated convolutions, on characters. There is no attention: the
decoder is stacked on the encoder, and its step t reads column t of the encoder output. A target is often longer than
its source, so the source of |s| tokens is first extended to |t'| = a |s| + b columns by a learned padding vector; the
paper has a = 1.2 and b = 0 for English to German. The decoder goes on until it writes the end token (dynamic
unfolding). Beyond |t'| columns it reads zeros. Time and memory are linear in the lengths of the sentences.

A block (figure 3 of the paper, left): norm, ReLU, 1 x 1 convolution to half the width, norm, ReLU, dilated convolution,
norm, ReLU, 1 x 1 convolution to the full width; the result is added to the input. The dilation is 1, 2, 4, 8, 16, and
then again. The convolutions of the decoder are masked: they read no later token.

Departures: the paper does not say how encoder column and target embedding are combined; here norm, ReLU and a linear
layer map the column, and the embedding is added. Dropout is on the output of each block and on the decoder output.
Only |t'| columns are encoded, not the next multiple of 50.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import ModelSettings
from regard.config.ranges import EvenWidth, Layers, Range, Share, require
from regard.layers.convolution import next_window, no_inputs, no_tokens, one_more_token, windows
from regard.layers.dropout import Dropout
from regard.layers.hooks import HiddenStateHook
from regard.layers.init import glorot
from regard.models.base import EncoderOutput, LayerStack, Seq2Seq, Source, TokenEmbedding, mask_or_none

ROUNDING = 1e-6  # 1.1 * 10 is slightly more than 11 in floating point; it must not be rounded up to 12


@dataclass(frozen=True)
class ByteNetSettings(ModelSettings):
    """Settings of ByteNet (Kalchbrenner et al. 2016): dilated convolutions on characters, without attention."""

    kind: ClassVar[str] = "seq2seq"
    network: ClassVar[str] = "ByteNet"
    about: ClassVar[str] = "Neural Machine Translation in Linear Time (Kalchbrenner et al. 2016)"

    arch: str = "bytenet"
    encoder_layers: Layers = 10
    """Number of residual blocks of the encoder; the paper has 30."""
    decoder_layers: Layers = 10
    """Number of residual blocks of the decoder; the paper has 30."""
    width: EvenWidth = 512
    """Width of embeddings and blocks, 2d in the paper, which has 1600; the dilated convolutions are half as wide."""
    kernel: Annotated[int, Range(1, 255)] = 3
    """Kernel width: the number of positions that a dilated convolution reads; must be odd."""
    dilations: Annotated[tuple[int, ...], Range(1, 65_536)] = (1, 2, 4, 8, 16)
    """Dilations of successive blocks; further blocks start again with the first."""
    length_ratio: Annotated[float, Range(1, 100)] = 1.2
    """Encoder columns per source token, a in the paper; `length_extra` is added."""
    length_extra: Annotated[int, Range(0, 65_536)] = 0
    """Encoder columns beyond `length_ratio` times the source length, b in the paper."""
    dropout: Share = 0.1
    """Dropout on the output of each block and on the decoder output."""

    def check(self) -> None:
        require(self.kernel % 2 == 1, f"model.kernel must be an odd number, not {self.kernel}")
        require(bool(self.dilations), "model.dilations must not be empty")

    @property
    def attends(self) -> bool:
        return False

    @property
    def tokenizer_kind(self) -> str:
        return "character"

    def kept_per_token(self, length: float) -> float:
        """How many numbers the backward pass needs per source and target token: inputs of norms, ReLUs and layers."""
        columns = self.length_ratio * self.encoder_layers + self.decoder_layers
        return self.width * (columns * (4.5 + self.kernel / 2) + 8)


PRESETS: dict[str, ModelSettings] = {"bytenet": ByteNetSettings("bytenet")}


class ResidualBlock(nn.Module):
    """Three convolutions, each after norm and ReLU, and a residual connection; masked in the decoder."""

    def __init__(self, settings: ByteNetSettings, dilation: int, *, masked: bool):
        super().__init__()
        width, inner = settings.width, settings.width // 2
        self.kernel, self.dilation, self.masked = settings.kernel, dilation, masked
        self.norm_down, self.down = nn.LayerNorm(width), glorot(nn.Linear(width, inner))
        self.norm_conv, self.conv = nn.LayerNorm(inner), glorot(nn.Linear(settings.kernel * inner, inner))
        self.norm_up, self.up = nn.LayerNorm(inner), glorot(nn.Linear(inner, width))
        self.drop = Dropout(settings.dropout)

    def forward(self, x_BTD: Tensor, real_BT1: Tensor | None = None) -> Tensor:
        """Compute the block at all positions. `real_BT1` is 0 where the convolution must read zeros, else 1."""
        inner_BTF = self._narrow(x_BTD)
        inner_BTF = inner_BTF if real_BT1 is None else inner_BTF * real_BT1
        return self._widen(x_BTD, windows(inner_BTF, self.kernel, self.dilation, causal=self.masked))

    def start(self, rows: int) -> Tensor:
        return no_inputs(rows, self.kernel, self.dilation, self.conv.weight)

    def step(self, x_BWD: Tensor, past_BWRF: Tensor) -> tuple[Tensor, Tensor]:
        window_BWN, past_BWRF = next_window(self._narrow(x_BWD), past_BWRF, self.dilation)
        return self._widen(x_BWD, window_BWN), past_BWRF

    def _narrow(self, x: Tensor) -> Tensor:
        inner = self.down(F.relu(self.norm_down(x), inplace=True))
        return F.relu(self.norm_conv(inner), inplace=True)

    def _widen(self, x: Tensor, window: Tensor) -> Tensor:
        inner = self.conv(window)
        return x + self.drop(self.up(F.relu(self.norm_up(inner), inplace=True)))


def _blocks(settings: ByteNetSettings, number: int, *, masked: bool) -> LayerStack[ResidualBlock]:
    dilations: Sequence[int] = settings.dilations
    return LayerStack(
        ResidualBlock(settings, dilations[block % len(dilations)], masked=masked) for block in range(number)
    )


class ByteNetEncoder(nn.Module):
    """Embedding, extension to a |s| + b columns, residual blocks, and the map of the columns for the decoder."""

    def __init__(self, settings: ByteNetSettings, vocabulary: int):
        super().__init__()
        self.ratio, self.extra = settings.length_ratio, settings.length_extra
        self.embed = TokenEmbedding(vocabulary, settings.width)
        self.padding = nn.Parameter(torch.randn(settings.width))
        self.blocks = _blocks(settings, settings.encoder_layers, masked=False)
        self.norm = nn.LayerNorm(settings.width)
        self.bridge = glorot(nn.Linear(settings.width, settings.width))
        self.stream = HiddenStateHook("encoder")

    def forward(self, source: Source) -> EncoderOutput:
        """The columns [B, C, D] of each source sentence, zero after the last column of the sentence, and their mask."""
        length = source.ids_BS.shape[1]
        tokens = source.mask_BS.sum(1).tolist()
        columns = [self._columns(number) for number in tokens]
        longest, device = max(length, self._columns(length)), source.mask_BS.device
        mask_BC = torch.arange(longest, device=device) < torch.tensor(columns, device=device)[:, None]
        x_BCD = self._extend(self.stream.see("embed", self.embed(source.ids_BS)), source.mask_BS, longest)
        mask = mask_or_none(mask_BC)
        real_BC1 = None if mask is None else mask.unsqueeze(-1).to(x_BCD)  # dtype and device
        for number, block in enumerate(self.blocks):
            x_BCD = self._see(number, block(x_BCD, real_BC1), length)
        x_BCD = self.bridge(F.relu(self.norm(x_BCD)))
        return EncoderOutput(self._see("top", x_BCD if real_BC1 is None else x_BCD * real_BC1, length), mask_BC)

    def _columns(self, tokens: int) -> int:
        """Number of columns a |s| + b for a sentence of `tokens` tokens."""
        return math.ceil(tokens * self.ratio + self.extra - ROUNDING)

    def _extend(self, x_BSD: Tensor, mask_BS: Tensor, columns: int) -> Tensor:
        """Replace padding by the learned vector, and append the vector up to the number of columns."""
        mask = mask_or_none(mask_BS)
        if mask is not None:
            x_BSD = torch.where(mask.unsqueeze(-1).to(x_BSD.device), x_BSD, self.padding)
        more_BND = self.padding.expand(x_BSD.shape[0], columns - x_BSD.shape[1], -1)
        return torch.cat([x_BSD, more_BND], dim=1)

    def _see(self, place: str | int, x_BCD: Tensor, length: int) -> Tensor:
        """Pass the states of the source tokens, without the other columns, to the hooks, which may replace them."""
        if not self.stream.listeners:
            return x_BCD
        return torch.cat([self.stream.see(place, x_BCD[:, :length]), x_BCD[:, length:]], dim=1)


class State(NamedTuple):
    """The decoder state: the number of tokens read, and the last inputs of each dilated convolution."""

    read_BWT0: Tensor
    """No elements: only T is used, the number of tokens."""
    past: tuple[Tensor, ...]


class ByteNet(Seq2Seq):
    """The ByteNet network: encoder, and a decoder stacked on the encoder."""

    example_length: ClassVar[int] = 100  # for 1 to 3 tokens, rounding up a |s| changes the cost too much

    def __init__(self, settings: ByteNetSettings, source_vocabulary: int, target_vocabulary: int):
        super().__init__()
        self.encoder = ByteNetEncoder(settings, source_vocabulary)
        self.embed = TokenEmbedding(target_vocabulary, settings.width)
        self.decoder = _blocks(settings, settings.decoder_layers, masked=True)
        self.norm = nn.LayerNorm(settings.width)
        self.last = glorot(nn.Linear(settings.width, settings.width))
        self.drop = Dropout(settings.dropout)
        self.output = glorot(nn.Linear(settings.width, target_vocabulary))
        self.stream = HiddenStateHook("decoder")

    def encode(self, source: Source) -> EncoderOutput:
        memory: EncoderOutput = self.encoder(source)
        return memory

    def start(self, memory: EncoderOutput) -> State:
        rows = memory.states_BSD.shape[0]
        return State(no_tokens(memory.states_BSD), tuple(block.start(rows) for block in self.decoder))

    def step(self, token_BW: Tensor, state: State, memory: EncoderOutput) -> tuple[Tensor, State]:
        position, columns_BCD = state.read_BWT0.shape[2], memory.states_BSD
        x_BWD = self.stream.see("embed", self.embed(token_BW))
        if position < columns_BCD.shape[1]:
            x_BWD = x_BWD + columns_BCD[:, position : position + 1]
        past = []
        for number, (block, inputs_BWRF) in enumerate(zip(self.decoder, state.past, strict=True)):
            x_BWD, inputs_BWRF = block.step(x_BWD, inputs_BWRF)
            x_BWD = self.stream.see(number, x_BWD)
            past.append(inputs_BWRF)
        return self.output(self._finish(x_BWD)), State(one_more_token(state.read_BWT0), tuple(past))

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        columns_BCD = memory.states_BSD
        more = target_BT.shape[1] - columns_BCD.shape[1]
        columns_BTD = F.pad(columns_BCD, (0, 0, 0, more))  # less than 0 cuts columns off
        x_BTD = self.stream.see("embed", self.embed(target_BT)) + columns_BTD
        for number, block in enumerate(self.decoder):
            x_BTD = self.stream.see(number, block(x_BTD))
        return self._finish(x_BTD)

    def _finish(self, x: Tensor) -> Tensor:
        """The last 1 x 1 convolution, after norm and ReLU; then ReLU and dropout, before the output layer."""
        return self.drop(self.stream.see("top", F.relu(self.last(F.relu(self.norm(x))))))
