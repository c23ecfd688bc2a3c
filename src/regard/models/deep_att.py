"""Deep-Att: "Deep Recurrent Models with Fast-Forward Connections for Neural Machine Translation", Zhou et al. 2016.

An LSTM layer has two parts. Its f block is linear: f = W [half of f of the layer below; h of the layer below]. Its
recurrent block computes the hidden states h from f, which is the input of the gates. So there is a path from the word
embeddings to the top layer without any nonlinearity: the fast-forward connections. They make many layers trainable.

The encoder has two columns of layers. The direction alternates from layer to layer, and the two columns start in
opposite directions (interleaved bidirectional encoder). A source position is represented by h and f of both top layers,
projected to a quarter of their width. The decoder has one column. Its bottom layer reads the previous word and the
context vector of additive attention, whose query is the previous hidden state of the bottom layer.

Departures: the gates have biases and no peephole connections; half of f are the inputs of candidate and input gate.
Weights are initialized as in models/recurrent.py (Glorot, which here preserves the variance of f from layer to layer;
the paper: a standard deviation of 0.07, and zero for recurrent weights). Dropout is also on the embeddings and before
the softmax. One learning rate replaces the paper's two and its L2 regularization. The model without attention (Deep-ED)
is not here. docs/decoding.md describes how unknown words are replaced (PosUnk).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import ModelSettings
from regard.config.ranges import Layers, Share, Width
from regard.layers.attention import KeyValue, RecurrentAttention
from regard.layers.dropout import Dropout
from regard.layers.hooks import HiddenStateHook
from regard.layers.init import glorot
from regard.layers.inputs import Input
from regard.layers.rnn_cells import LSTM, unroll
from regard.models.base import (
    EncoderOutput,
    LayerStack,
    Seq2Seq,
    Source,
    TokenEmbedding,
    embed_time_first,
    input_embedding,
    mask_or_none,
)
from regard.models.recurrent import RecurrentState, beams_to_rows

COLUMNS = 2
"""Number of columns of the encoder."""


@dataclass(frozen=True)
class DeepAttSettings(ModelSettings):
    """Deep LSTM encoder-decoder with fast-forward connections and attention (Zhou et al. 2016)."""

    kind: ClassVar[str] = "seq2seq"
    network: ClassVar[str] = "DeepAtt"
    about: ClassVar[str] = (
        "Deep Recurrent Models with Fast-Forward Connections for Neural Machine Translation (Zhou et al. 2016)"
    )

    arch: str = "deep-att"
    encoder_layers: Layers = 5
    """Number of layers in each of the two columns of the encoder (paper: 9)."""
    decoder_layers: Layers = 3
    """Number of decoder layers (paper: 7)."""
    width: Width = 128
    """Width of the hidden states (paper: 512); the inputs of the gates are four times as wide."""
    embedding_width: Width = 256
    """Width of the token embeddings."""
    fast_forward: bool = True
    """Whether a layer also reads half of the gate inputs of the layer below (fast-forward connections)."""
    dropout: Share = 0.2
    """Dropout on embeddings, on the hidden states that the next layer reads, and before the output (paper: 0.1)."""

    @property
    def muon_rate(self) -> float:
        return 0.005  # f passes through many linear maps, which grow with Muon's steps: 0.02 diverges (docs/log.md)

    @property
    def joined_width(self) -> int:
        """Width of the top states of the encoder: h and f of both columns."""
        return COLUMNS * (1 + LSTM.gates) * self.width

    @property
    def memory_width(self) -> int:
        """Width of the encoder output: a quarter of the top states."""
        return max(1, self.joined_width // 4)

    @property
    def stacked_width(self) -> int:
        """Width of the input of a layer above the first: h and, with fast-forward connections, half of f."""
        return self.width * (3 if self.fast_forward else 1)

    def kept_per_token(self, length: float) -> float:
        """Numbers kept for the backward pass for one source token and one target token: layers, attention."""
        layers = (COLUMNS * self.encoder_layers + self.decoder_layers) * (15 * self.width + self.stacked_width)
        return layers + self.joined_width + 2 * (self.memory_width + length * self.width) + 4 * self.embedding_width


PRESETS: dict[str, ModelSettings] = {"deep-att": DeepAttSettings("deep-att")}


class LayerOutput(NamedTuple):
    """Output of a layer at every step: the inputs of its gates (the f block), and its hidden states."""

    f_SBG: Tensor
    h_SBD: Tensor


class Stacking(nn.Module):
    """The input of the f block of an upper layer: [half of f; h] of the layer below, with dropout on h."""

    def __init__(self, settings: DeepAttSettings):
        super().__init__()
        self.fast_forward = settings.fast_forward
        self.drop = Dropout(settings.dropout, rows=-2)

    def forward(self, below: LayerOutput) -> Tensor:
        h_SBD = self.drop(below.h_SBD)
        if not self.fast_forward:
            return h_SBD
        half = below.f_SBG.unflatten(-1, (LSTM.gates, -1))[..., ::2, :].flatten(-2)  # input gate and candidate
        return torch.cat([half, h_SBD], dim=-1)


class Column(nn.Module):
    """A column of the encoder: layers of alternating direction, the first backward if `starts_backward`."""

    def __init__(self, settings: DeepAttSettings, *, starts_backward: bool):
        super().__init__()
        widths = [settings.embedding_width, *[settings.stacked_width] * (settings.encoder_layers - 1)]
        self.layers = LayerStack(LSTM(width, settings.width) for width in widths)
        self.backward = [starts_backward ^ bool(layer % 2) for layer in range(settings.encoder_layers)]

    def run(self, layer: int, x_SBD: Tensor, mask_SB: Tensor | None) -> LayerOutput:
        """Run one layer, counted from 0, over the whole source; `x_SBD` is the input of its f block."""
        cell = list(self.layers)[layer]
        f_SBG = cell.input(x_SBD)
        h_SBD, _ = unroll(cell, f_SBG, cell.start(x_SBD.shape[1]), mask_SB, backward=self.backward[layer])
        return LayerOutput(f_SBG, h_SBD)


class DeepEncoder(nn.Module):
    """Embedding, two columns of interleaved directions, and the projection of their top states."""

    def __init__(self, settings: DeepAttSettings, source: Input):
        super().__init__()
        self.embed = input_embedding(source, settings.embedding_width)
        self.drop = Dropout(settings.dropout, rows=-2)
        self.columns = LayerStack(Column(settings, starts_backward=backward) for backward in (False, True))
        self.stacking = Stacking(settings)
        self.project = glorot(nn.Linear(settings.joined_width, settings.memory_width))
        self.depth = settings.encoder_layers
        self.stream = HiddenStateHook("encoder")

    def forward(self, source: Source) -> Tensor:
        """The encoded source [B, S, D]. The state of a layer, as hooks see it, is [h of column 1; h of column 2]."""
        mask_BS = mask_or_none(source.mask_BS)
        mask_SB = None if mask_BS is None else mask_BS.t()
        x_SBE = self.drop(see(self.stream, "embed", embed_time_first(self.embed, source.ids_BS)))
        inputs, outputs = [x_SBE] * COLUMNS, list[LayerOutput]()
        for layer in range(self.depth):
            outputs = [column.run(layer, x, mask_SB) for column, x in zip(self.columns, inputs, strict=True)]
            states = see(self.stream, layer, torch.cat([output.h_SBD for output in outputs], dim=-1))
            outputs = [
                LayerOutput(output.f_SBG, h_SBD)
                for output, h_SBD in zip(outputs, states.chunk(COLUMNS, dim=-1), strict=True)
            ]
            inputs = [self.stacking(output) for output in outputs] if layer + 1 < self.depth else []
        joined = torch.cat([part for output in outputs for part in output], dim=-1)
        return see(self.stream, "top", self.project(joined)).transpose(0, 1)


def see(stream: HiddenStateHook, place: str | int, x_SBD: Tensor) -> Tensor:
    """Pass states with time as first axis through a hook, which sees the batch as first axis."""
    return stream.see(place, x_SBD.transpose(0, 1)).transpose(0, 1)


class DeepAtt(Seq2Seq):
    """Encoder and decoder."""

    reads_vectors = True

    def __init__(self, settings: DeepAttSettings, source_vocabulary: Input, target_vocabulary: int):
        super().__init__()
        self.reads = source_vocabulary
        width, memory_width = settings.width, settings.memory_width
        self.encoder = DeepEncoder(settings, source_vocabulary)
        self.embed = TokenEmbedding(target_vocabulary, settings.embedding_width)
        self.attention = RecurrentAttention("additive", width, memory_width, "decoder.cross")
        self.bottom = LSTM(settings.embedding_width, width, memory_width)
        self.upper = LayerStack(LSTM(settings.stacked_width, width) for _ in range(1, settings.decoder_layers))
        self.stacking = Stacking(settings)
        self.drop = Dropout(settings.dropout, rows=-2)
        self.output = nn.Linear(width, target_vocabulary, bias=False)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        self.stream = HiddenStateHook("decoder")

    def encode(self, source: Source) -> EncoderOutput:
        """Encode the source: returns encoder states and, in `extra`, the keys and values of the attention."""
        states_BSD = self.encoder(source)
        [key_BSD] = self.attention.prepare(states_BSD)
        return EncoderOutput(states_BSD, source.mask_BS, KeyValue(key_BSD, states_BSD))

    def start(self, memory: EncoderOutput) -> RecurrentState:
        rows = memory.states_BSD.shape[0]
        state = RecurrentState(tuple(cell.start(rows) for cell in (self.bottom, *self.upper)))
        return state.map(lambda part: part.unsqueeze(1))

    def step(self, token_BW: Tensor, state: RecurrentState, memory: EncoderOutput) -> tuple[Tensor, RecurrentState]:
        x_BWE = self.stream.see("embed", self.embed(token_BW))
        top_TND, after = self._decode(x_BWE.flatten(0, 1)[None], state.map(beams_to_rows), memory)
        top_BWD = self.stream.see("top", top_TND[0].unflatten(0, token_BW.shape))
        return self.output(top_BWD), after.map(lambda part: part.unflatten(0, token_BW.shape))

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        x_BTE = self.stream.see("embed", self.embed(target_BT))
        top_TBD, _ = self._decode(x_BTE.transpose(0, 1), self.start(memory).map(beams_to_rows), memory)
        return self.drop(see(self.stream, "top", top_TBD)).transpose(0, 1)

    def _decode(self, x_TNE: Tensor, state: RecurrentState, memory: EncoderOutput) -> tuple[Tensor, RecurrentState]:
        """Run all layers over T embedded tokens of N rows: returns the top states [T, N, D] and the next state."""
        bottom, *above = state.layers
        steps, bottom = self.attention.before_cell(
            self.bottom, self.bottom.input(self.drop(x_TNE)), bottom, memory.extra, mask_or_none(memory.mask_BS)
        )
        output = LayerOutput(torch.stack([one.read_NG for one in steps]), torch.stack([one.hidden_ND for one in steps]))
        lasts = [bottom]
        for cell, first in zip(self.upper, above, strict=True):
            f_TNG = cell.input(self.stacking(output))
            h_TND, last = unroll(cell, f_TNG, first)
            output = LayerOutput(f_TNG, h_TND)
            lasts.append(last)
        return output.h_SBD, RecurrentState(tuple(lasts))
