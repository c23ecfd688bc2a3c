"""Sequence-to-sequence LSTM (Sutskever), Bahdanau, Luong (with input feeding), GNMT: one encoder, three decoders.

`NoAttentionDecoder`: "Sequence to Sequence Learning with Neural Networks", Sutskever et al. 2014. The last state of
each encoder layer is the first state of the decoder layer of the same height; the source is read in reverse order.
Departures: the end token of the source is reversed with the other tokens, and the target has its own start token.

`BahdanauDecoder` (attention, then the cell): "Neural Machine Translation by Jointly Learning to Align and Translate",
Bahdanau et al. 2015. Departures: the reset gate acts after the recurrent product; the first decoder state is computed
from the last states of both directions, not only of the backward direction; the deep output reads the new state (as in
section 3.1, not as in the appendix), and its maxout layer is as wide as the state instead of half as wide.

`LuongDecoder` (the cells, then attention): "Effective Approaches to Attention-based Neural Machine Translation", Luong
et al. 2015, global attention with input feeding. Departures: no local attention and no location score; a scaled dot
product in addition to the paper's scores; the source is read forwards unless `reverse_source` is set.

GNMT: "Google's Neural Machine Translation System", Wu et al. 2016. It is a deep `BahdanauDecoder`: only the bottom
layer computes attention, and every layer reads the context vector. Departures: the decoder starts from the encoder's
last states; Bahdanau's deep output comes before the softmax.

With `experts`, a mixture of experts stands below the top layer of encoder and decoder, as in Shazeer et al. 2017: its
output goes through a sigmoid and dropout, and is added to its input. Luong's decoder has none, because input feeding
computes one token at a time, and the balance of the experts needs the tokens of the whole batch.

In all models, recurrent weights are initialized orthogonally (Bahdanau et al.), other weights by Glorot, the bias of
the forget gate to one; embeddings are multiplied by the square root of their width; dropout is on the inputs of layers,
not on recurrent states. The presets are smaller than the models in the papers; the recipes name both sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import ModelSettings
from regard.config.ranges import EvenWidth, Layers, Range, Share, Width, require
from regard.errors import SettingsError
from regard.layers.attention import KeyValue, RecurrentAttention
from regard.layers.auxiliary import target_mask
from regard.layers.dropout import Dropout
from regard.layers.experts import MixtureOfExperts
from regard.layers.hooks import HiddenStateHook
from regard.layers.init import glorot
from regard.layers.inputs import Input
from regard.layers.rnn_cells import CELLS, CellState, RecurrentLayer, unroll
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
from regard.models.transformer_settings import EXPERTS_PAPER, ExpertSettings


@dataclass(frozen=True)
class RecurrentLayerSettings(ExpertSettings):
    """Base class of the settings of all models with stacks of recurrent layers."""

    cell: Literal["lstm", "gru"] = "lstm"
    """The recurrent cell."""
    width: EvenWidth = 512
    """Width of the hidden states."""
    residual_from_layer: Annotated[int, Range(0)] = 0
    """First layer (counted from 1) with a residual connection; with 0, no layer has one."""
    dropout: Share = 0.2
    """Dropout between layers."""
    expert_width: Width = 1024
    """Width of the hidden layer of each expert."""

    def adds_input(self, layer: int, inputs: int, outputs: int) -> bool:
        """Whether layer number `layer` (from 1) has a residual connection; if so, `inputs` must equal `outputs`.

        `inputs` and `outputs` are the widths of its input and output.
        """
        wanted = 0 < self.residual_from_layer <= layer
        if wanted and inputs != outputs:
            raise SettingsError(
                f"model.residual_from_layer = {self.residual_from_layer}: layer {layer} has input width {inputs} and"
                f" output width {outputs}, which must be equal; set a higher number, or 0 for none"
            )
        return wanted


@dataclass(frozen=True)
class RecurrentSettings(RecurrentLayerSettings):
    """Settings of recurrent encoder-decoders: Sutskever et al. 2014, Bahdanau, Luong and GNMT."""

    kind: ClassVar[str] = "seq2seq"
    network: ClassVar[str] = "Recurrent"

    arch: str = "seq2seq-lstm"
    encoder_layers: Layers = 2
    """Number of encoder layers; a bidirectional layer counts once."""
    decoder_layers: Layers = 2
    """Number of decoder layers."""
    embedding_width: Width = 512
    """Width of the token embeddings."""
    bidirectional: Literal["none", "all", "first"] = "none"
    """Which encoder layers are bidirectional: none, all, or only the first (GNMT)."""
    attention: Literal["none", "bahdanau", "luong"] = "none"
    """Kind of attention: none (only the last encoder state is used), before the cell (Bahdanau), after it (Luong)."""
    attention_score: Literal["dot", "scaled", "general", "additive"] = "additive"
    """Attention score: dot product, scaled dot product, bilinear (general), or with a hidden layer (additive)."""
    reverse_source: bool = False
    """Read the source in reverse order (Sutskever et al.)."""
    tie_embeddings: Literal["target", "none"] = "none"
    """Whether target embeddings and output share one matrix (target) or not (none); needs equal widths."""

    def check(self) -> None:
        self.check_experts()
        for side in ("encoder", "decoder") if self.experts else ():
            require(
                getattr(self, f"{side}_layers") > 1 or (side == "decoder" and self.attention == "luong"),
                f"model.experts: experts stand between two layers; set model.{side}_layers to 2 or more",
            )
        require(
            self.tie_embeddings == "none" or self.embedding_width == self.width,
            'model.tie_embeddings needs model.embedding_width = model.width; or set model.tie_embeddings = "none"',
        )

    @property
    def attends(self) -> bool:
        return self.attention != "none"

    def paper(self) -> str:
        """The paper about this preset: its title, authors and year as one line of text."""
        paper = PAPERS[self.arch.partition("-")[0]]
        return f"{paper}, with {EXPERTS_PAPER}" if self.experts else paper

    def kept_per_token(self, length: float) -> float:
        """How many activations are stored for the backward pass, for one source token and one target token together.

        These are gates, states and attention weights. `length` is the mean number of tokens of a sentence.
        """
        directions = 1 if self.bidirectional == "none" else 2
        cells = 8 * self.width * (directions * self.encoder_layers + self.decoder_layers)
        attended = length * (self.width if self.attention_score == "additive" else 4) if self.attends else 0.0
        expert = 2 * self.active_experts * (self.expert_width + 2 * self.width) if self.experts else 0
        return cells + 2 * attended + 4 * self.embedding_width + expert


PRESETS: dict[str, ModelSettings] = {
    "seq2seq-lstm": RecurrentSettings("seq2seq-lstm", reverse_source=True),
    "bahdanau": RecurrentSettings(
        "bahdanau", cell="gru", encoder_layers=1, decoder_layers=1, bidirectional="all", attention="bahdanau"
    ),
    "luong-dot": RecurrentSettings("luong-dot", attention="luong", attention_score="dot"),
    "luong-general": RecurrentSettings("luong-general", attention="luong", attention_score="general"),
    "luong-concat": RecurrentSettings("luong-concat", attention="luong"),
    "gnmt": RecurrentSettings(
        "gnmt",
        encoder_layers=8,
        decoder_layers=8,
        width=1024,
        embedding_width=1024,
        bidirectional="first",
        attention="bahdanau",
        residual_from_layer=3,
    ),
}

PAPERS = {
    "seq2seq": "Sequence to Sequence Learning with Neural Networks (Sutskever et al. 2014)",
    "bahdanau": "Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau et al. 2015)",
    "luong": "Effective Approaches to Attention-based Neural Machine Translation (Luong et al. 2015)",
    "gnmt": "Google's Neural Machine Translation System (Wu et al. 2016)",
}


class RecurrentContext(NamedTuple):
    """Inputs of the decoder besides the encoder states: first state of each layer; attention keys, if projected."""

    first: tuple[CellState, ...]
    keys: tuple[Tensor, ...] = ()


class RecurrentState(NamedTuple):
    """The decoder state: the state of each layer and, for `LuongDecoder`, the last output vector (input feeding)."""

    layers: tuple[CellState, ...]
    fed: tuple[Tensor, ...] = ()

    def map(self, change: Callable[[Tensor], Tensor]) -> RecurrentState:
        """Return a state in which every tensor x is replaced by `change(x)`."""
        layers = tuple(tuple(change(part) for part in layer) for layer in self.layers)
        return RecurrentState(layers, tuple(change(part) for part in self.fed))


def beams_to_rows(x_BWD: Tensor) -> Tensor:
    """Reshape [B, W, ...] to [B W, ...], because a recurrent cell has one row per hypothesis."""
    return x_BWD.flatten(0, 1)


class RecurrentExperts(nn.Module):
    """A mixture of experts between two recurrent layers: x + drop(sigmoid(experts(x))) (Shazeer et al. 2017)."""

    def __init__(self, settings: RecurrentLayerSettings, width: int, name: str):
        super().__init__()
        self.experts = MixtureOfExperts(settings, width, settings.expert_width, "relu", name)
        self.drop = Dropout(settings.dropout, rows=-2)

    def forward(self, x_TND: Tensor, mask_NT: Tensor | None) -> Tensor:
        update_NTD = torch.sigmoid(self.experts(x_TND.transpose(0, 1), mask_NT))
        return x_TND + self.drop(update_NTD.transpose(0, 1))


class RecurrentEncoder(nn.Module):
    """Embedding and recurrent layers. States are in the order of the tokens, even if the source is read in reverse."""

    def __init__(self, settings: RecurrentSettings, source: Input):
        super().__init__()
        reverse = settings.reverse_source
        self.embed = input_embedding(source, settings.embedding_width)
        self.drop = Dropout(settings.dropout, rows=-2)
        stack: list[RecurrentLayer] = []
        self.residual: list[bool] = []
        inputs = settings.embedding_width
        for number in range(1, settings.encoder_layers + 1):
            both = settings.bidirectional == "all" or (settings.bidirectional == "first" and number == 1)
            directions = (reverse, not reverse) if both else (reverse,)
            layer = RecurrentLayer(settings.cell, inputs, settings.width, directions)
            self.residual.append(settings.adds_input(number, inputs, layer.width))
            stack.append(layer)
            inputs = layer.width
        self.layers = LayerStack(stack)
        self.experts = RecurrentExperts(settings, stack[-2].width, "encoder.experts") if settings.experts else None
        self.width = inputs
        self.stream = HiddenStateHook("encoder")

    def forward(self, source: Source) -> tuple[Tensor, list[CellState]]:
        """Return the states [B, S, D] of the top layer, and the last state of every layer."""
        mask_BS = mask_or_none(source.mask_BS)
        mask_SB = None if mask_BS is None else mask_BS.t()
        x_SBD = self._see("embed", embed_time_first(self.embed, source.ids_BS))
        lasts = []
        for height, (layer, adds_input) in enumerate(zip(self.layers, self.residual, strict=True)):
            if height == len(self.layers) - 1 and self.experts is not None:
                x_SBD = self.experts(x_SBD, mask_BS)
            output_SBD, last = layer(self.drop(x_SBD), mask_SB)
            x_SBD = self._see(height, x_SBD + output_SBD if adds_input else output_SBD)
            lasts.append(last)
        return self._see("top", x_SBD).transpose(0, 1), lasts

    def _see(self, place: str | int, x_SBD: Tensor) -> Tensor:
        return self.stream.see(place, x_SBD.transpose(0, 1)).transpose(0, 1)


class Bridge(nn.Module):
    """Computes the first state of a decoder layer from a last encoder state h: h if widths agree, else tanh(W h)."""

    def __init__(self, cell: str, encoder_width: int, width: int):
        super().__init__()
        parts = 0 if encoder_width == width else CELLS[cell].carried
        self.maps = nn.ModuleList(glorot(nn.Linear(encoder_width, width)) for _ in range(parts))

    def forward(self, last: CellState) -> CellState:
        if not self.maps:
            return last
        return tuple(torch.tanh(map_part(part)) for map_part, part in zip(self.maps, last, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Decoders. Input: a state and T embedded tokens [T, N, E] of N rows. Output: T readouts [T, N, D] and the next state.
# Teacher forcing is one call with the whole target (N = B), search one call per token (T = 1, N = B W).


class RecurrentStack(nn.Module):
    """Decoder layers without attention: each layer runs over all steps before the next layer starts.

    `layers`: their numbers, counted from 1. `inputs`: width of the input of the lowest one. `beside`: width of an
    additional input of every layer, such as the context vector. Experts, if any, stand below the top layer.
    """

    def __init__(self, settings: RecurrentLayerSettings, layers: range, inputs: int, beside: int = 0):
        super().__init__()
        widths = [inputs if layer == layers.start else settings.width for layer in layers]
        self.cells = LayerStack(CELLS[settings.cell](width + beside, settings.width) for width in widths)
        self.residual = [
            settings.adds_input(layer, width, settings.width) for layer, width in zip(layers, widths, strict=True)
        ]
        self.drop = Dropout(settings.dropout, rows=-2)
        self.experts = RecurrentExperts(settings, widths[-1], "decoder.experts") if settings.experts else None

    def forward(
        self, x_TND: Tensor, states: Sequence[CellState], beside_TND: Tensor | None = None
    ) -> tuple[Tensor, tuple[CellState, ...]]:
        """Run all layers over T steps of N rows; `states` are their first states.

        `beside_TND`, if given, is an additional input of every layer. Returns the outputs [T, N, D] of the top layer
        and the last state of each layer.
        """
        lasts: list[CellState] = []
        for cell, adds_input, state in zip(self.cells, self.residual, states, strict=True):
            if len(lasts) == len(self.cells) - 1 and self.experts is not None:
                x_TND = self.experts(x_TND, target_mask())
            read = self.drop(x_TND)
            read = read if beside_TND is None else torch.cat([read, beside_TND], dim=-1)
            output_TND, last = unroll(cell, cell.input(read), state)
            x_TND = x_TND + output_TND if adds_input else output_TND
            lasts.append(last)
        return x_TND, tuple(lasts)


class NoAttentionDecoder(nn.Module):
    """Decoder of Sutskever et al. 2014, without attention: the source influences only its first state."""

    def __init__(self, settings: RecurrentSettings):
        super().__init__()
        self.stack = RecurrentStack(settings, range(1, settings.decoder_layers + 1), settings.embedding_width)

    def forward(self, x_TNE: Tensor, state: RecurrentState, memory: EncoderOutput) -> tuple[Tensor, RecurrentState]:
        top_TND, layers = self.stack(x_TNE, state.layers)
        return top_TND, RecurrentState(layers)


class BahdanauDecoder(nn.Module):
    """Decoder of Bahdanau et al. 2015: attention first, then the recurrent cell, which reads [token; context].

    The query is the previous state of the bottom layer. Higher layers read [state of the layer below; context] (Wu et
    al. 2016).
    """

    def __init__(self, settings: RecurrentSettings, memory_width: int):
        super().__init__()
        self.attention = RecurrentAttention(settings.attention_score, settings.width, memory_width, "decoder.cross")
        self.drop = Dropout(settings.dropout, rows=-2)
        self.bottom = CELLS[settings.cell](settings.embedding_width, settings.width, memory_width)
        self.adds_input = settings.adds_input(1, settings.embedding_width, settings.width)
        self.upper = RecurrentStack(settings, range(2, settings.decoder_layers + 1), settings.width, memory_width)
        self.maxout = glorot(
            nn.Linear(settings.width + settings.embedding_width + memory_width, 2 * settings.width), parts=2
        )

    def forward(self, x_TNE: Tensor, state: RecurrentState, memory: EncoderOutput) -> tuple[Tensor, RecurrentState]:
        bottom, *above = state.layers
        steps, bottom = self.attention.before_cell(
            self.bottom, self.bottom.input(self.drop(x_TNE)), bottom, _key_value(memory), mask_or_none(memory.mask_BS)
        )
        context_TND, x_TND = (
            torch.stack(part) for part in ([s.context_ND for s in steps], [s.hidden_ND for s in steps])
        )
        top_TND, layers = self.upper(x_TND + x_TNE if self.adds_input else x_TND, above, context_TND)
        read = torch.cat([top_TND, x_TNE, context_TND], dim=-1)
        return torch.maximum(*self.maxout(read).chunk(2, dim=-1)), RecurrentState((bottom, *layers))


class LuongDecoder(nn.Module):
    """Decoder of Luong et al. 2015: the recurrent cells first, then attention, whose query is the top layer's output.

    The output is tanh(W [context; top layer's output]), which the next step also reads (input feeding).
    """

    def __init__(self, settings: RecurrentSettings, memory_width: int):
        super().__init__()
        self.attention = RecurrentAttention(settings.attention_score, settings.width, memory_width, "decoder.cross")
        self.drop = Dropout(settings.dropout, rows=-2)
        kind, width = CELLS[settings.cell], settings.width
        self.bottom = kind(settings.embedding_width, width, fed=width)
        self.upper = LayerStack(kind(width, width) for _ in range(1, settings.decoder_layers))
        self.residual = [settings.adds_input(1, settings.embedding_width, width)]
        self.residual += [settings.adds_input(layer, width, width) for layer in range(2, settings.decoder_layers + 1)]
        self.combine = glorot(nn.Linear(memory_width + width, width, bias=False))

    def forward(self, x_TNE: Tensor, state: RecurrentState, memory: EncoderOutput) -> tuple[Tensor, RecurrentState]:
        layers, (fed_ND,) = state
        source, mask_BS = _key_value(memory), mask_or_none(memory.mask_BS)
        tops = []
        with self.attention.hook_for_loop() as tap:
            for x_NE, read_NG in zip(x_TNE, self.bottom.input(self.drop(x_TNE)).unbind(0), strict=True):
                top_ND, layers = self._step(x_NE, self.bottom.feed_in(read_NG, fed_ND), layers)
                context_ND = self.attention(top_ND, source, mask_BS, tap)
                fed_ND = torch.tanh(self.combine(torch.cat([context_ND, top_ND], dim=-1)))
                tops.append(fed_ND)
        return torch.stack(tops), RecurrentState(layers, (fed_ND,))

    def _step(self, x: Tensor, read_NG: Tensor, layers: tuple[CellState, ...]) -> tuple[Tensor, tuple[CellState, ...]]:
        """Run every layer for one step, from the bottom up; return the output of the top layer and the new states.

        `x` is the embedded token; `read_NG` is the part of the gates of the bottom cell that depends on its inputs.
        """
        states = [self.bottom(read_NG, layers[0])]
        x = x + states[0][0] if self.residual[0] else states[0][0]
        for cell, adds_input, state in zip(self.upper, self.residual[1:], layers[1:], strict=True):
            states.append(cell(cell.input(self.drop(x)), state))
            x = x + states[-1][0] if adds_input else states[-1][0]
        return x, tuple(states)


class Recurrent(Seq2Seq):
    """The network: recurrent encoder, and a decoder without attention or with the attention of Bahdanau or Luong."""

    reads_vectors = True

    def __init__(self, settings: RecurrentSettings, source_vocabulary: Input, target_vocabulary: int):
        super().__init__()
        self.reads = source_vocabulary
        layers, width = settings.decoder_layers, settings.width
        self.encoder = RecurrentEncoder(settings, source_vocabulary)
        lowest = settings.encoder_layers - layers  # the top decoder layer starts from the top encoder layer
        self.origins = [max(0, lowest + layer) for layer in range(layers)]
        widths = [layer.width for layer in self.encoder.layers]
        self.bridges = LayerStack(Bridge(settings.cell, widths[origin], width) for origin in self.origins)
        self.embed = TokenEmbedding(target_vocabulary, settings.embedding_width)
        self.decoder: NoAttentionDecoder | BahdanauDecoder | LuongDecoder
        if settings.attention == "none":
            self.decoder = NoAttentionDecoder(settings)
        elif settings.attention == "bahdanau":
            self.decoder = BahdanauDecoder(settings, self.encoder.width)
        else:
            self.decoder = LuongDecoder(settings, self.encoder.width)
        self.drop = Dropout(settings.dropout)
        self.output = nn.Linear(width, target_vocabulary, bias=False)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        if settings.tie_embeddings == "target":
            self.output.weight = self.embed.tokens.weight
        self.stream = HiddenStateHook("decoder")

    def encode(self, source: Source) -> EncoderOutput:
        """Encode the source: returns encoder states and, in `extra`, first decoder states and attention keys."""
        states_BSD, lasts = self.encoder(source)
        first = tuple(bridge(lasts[origin]) for bridge, origin in zip(self.bridges, self.origins, strict=True))
        keys = () if isinstance(self.decoder, NoAttentionDecoder) else self.decoder.attention.prepare(states_BSD)
        return EncoderOutput(states_BSD, source.mask_BS, RecurrentContext(first, keys))

    def start(self, memory: EncoderOutput) -> RecurrentState:
        layers = tuple(tuple(part.unsqueeze(1) for part in layer) for layer in memory.extra.first)
        fed = (torch.zeros_like(layers[0][0]),) if isinstance(self.decoder, LuongDecoder) else ()
        return RecurrentState(layers, fed)

    def step(self, token_BW: Tensor, state: RecurrentState, memory: EncoderOutput) -> tuple[Tensor, RecurrentState]:
        x_BWE = self.stream.see("embed", self.embed(token_BW))
        top_TND, after = self.decoder(x_BWE.flatten(0, 1)[None], state.map(beams_to_rows), memory)
        top_BWD = self.stream.see("top", top_TND[0].unflatten(0, token_BW.shape))
        return self.output(top_BWD), after.map(lambda part: part.unflatten(0, token_BW.shape))

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        x_BTE = self.stream.see("embed", self.embed(target_BT))
        top_TBD, _ = self.decoder(x_BTE.transpose(0, 1), self.start(memory).map(beams_to_rows), memory)
        return self.drop(self.stream.see("top", top_TBD.transpose(0, 1)))


def _key_value(memory: EncoderOutput) -> KeyValue:
    return KeyValue(memory.extra.keys[0] if memory.extra.keys else memory.states_BSD, memory.states_BSD)
