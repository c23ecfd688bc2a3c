"""The attending LSTM of "Show, Attend and Tell": captions of pictures, Xu et al. 2015, with soft attention.

The encoder gives one annotation vector per patch of the picture. At every step, the previous hidden state of the LSTM
attends to them (additive score); a gate, computed from the same state, scales the context vector, which the LSTM reads
beside the last token. The first state is computed from the mean of the annotation vectors.

Doubly stochastic attention adds weight * sum over patches of (1 - sum over tokens of the attention)^2 per caption to
the loss, so that a caption looks at all parts of a picture.

Departures: the annotation vectors are learned from the pictures of the training data, where the paper takes those of
another network; they have positional encodings; the first state has one layer per part. A source of tokens is a
sequence of embeddings with positional encodings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from regard.config import ModelSettings
from regard.config.ranges import EvenWidth, NotNegative, Share, Width, require
from regard.layers.attention import KeyValue, RecurrentAttention
from regard.layers.auxiliary import add_auxiliary, is_collecting, target_mask, token_total
from regard.layers.dropout import Dropout
from regard.layers.hooks import AttentionRecord, HiddenStateHook
from regard.layers.init import glorot
from regard.layers.inputs import Input
from regard.layers.positional_encoding import position_layer
from regard.layers.rnn_cells import LSTM, CellState
from regard.models.base import (
    EncoderOutput,
    Seq2Seq,
    Source,
    TokenEmbedding,
    grid_of,
    input_embedding,
    mask_or_none,
)


@dataclass(frozen=True)
class ShowAttendTellSettings(ModelSettings):
    """Settings of the attending LSTM for captions (Xu et al. 2015)."""

    kind: ClassVar[str] = "seq2seq"
    network: ClassVar[str] = "ShowAttendTell"
    about: ClassVar[str] = (
        "Show, Attend and Tell: Neural Image Caption Generation with Visual Attention (Xu et al. 2015)"
    )

    arch: str = "show-attend-tell"
    width: EvenWidth = 512
    """Width of the annotation vectors and of the LSTM."""
    embedding_width: Width = 512
    """Width of the token embeddings."""
    dropout: Share = 0.3
    """Dropout on annotation vectors, embeddings and the output."""
    context_gate: bool = True
    """Whether a gate, computed from the previous state, scales the context vector."""
    doubly_stochastic: NotNegative = 1.0
    """Weight of the loss that makes the attention to each patch sum to 1 over the caption; 0: none."""

    def check(self) -> None:
        require(self.width % 4 == 0, f"model.width must be a multiple of 4 (positions of pictures), not {self.width}")

    def kept_per_token(self, length: float) -> float:
        """Activations kept for one token: annotation vectors, gates and states, hidden layer of the score."""
        return 12 * self.width + 4 * self.embedding_width + 2 * length * self.width


PRESETS: dict[str, ModelSettings] = {"show-attend-tell": ShowAttendTellSettings()}


class Annotations(nn.Module):
    """The encoder: annotation vectors of the patches of a picture, with positional encodings."""

    def __init__(self, settings: ShowAttendTellSettings, source: Input):
        super().__init__()
        self.embed = input_embedding(source, settings.width)
        self.positions = position_layer("sinusoidal", "add", settings.width, 0, grid_of(source))
        self.drop = Dropout(settings.dropout)
        self.stream = HiddenStateHook("encoder")

    def forward(self, source: Source) -> Tensor:
        x_BSD = self.stream.see("embed", self.positions(self.embed(source.ids_BS)))
        return self.stream.see("top", self.stream.see(0, self.drop(x_BSD)))


class Start(NamedTuple):
    """Inputs of the decoder besides the annotation vectors: the first state of the LSTM, and the attention keys."""

    state: CellState
    keys_BSD: Tensor


class ShowAttendTell(Seq2Seq):
    """The network: annotation vectors, an LSTM that attends to them, and the deep output layer of the paper."""

    reads_vectors = True

    def __init__(self, settings: ShowAttendTellSettings, source_vocabulary: Input, target_vocabulary: int):
        super().__init__()
        self.reads, self.regularization = source_vocabulary, settings.doubly_stochastic
        width, inputs = settings.width, settings.embedding_width
        self.encoder = Annotations(settings, source_vocabulary)
        self.first = nn.ModuleList(glorot(nn.Linear(width, width)) for _ in range(LSTM.carried))
        self.embed = TokenEmbedding(target_vocabulary, inputs)
        self.attention = RecurrentAttention("additive", width, width, "decoder.cross")
        self.gate = glorot(nn.Linear(width, 1)) if settings.context_gate else None
        self.cell = LSTM(inputs, width, width)
        self.from_hidden = glorot(nn.Linear(width, inputs))
        self.from_context = glorot(nn.Linear(width, inputs, bias=False))
        self.drop, self.output_drop = Dropout(settings.dropout, rows=-2), Dropout(settings.dropout)
        self.output = nn.Linear(inputs, target_vocabulary, bias=False)
        nn.init.normal_(self.output.weight, std=inputs**-0.5)
        self.stream = HiddenStateHook("decoder")

    def encode(self, source: Source) -> EncoderOutput:
        """Encode the picture: annotation vectors and, in `extra`, the first state of the LSTM and attention keys."""
        states_BSD = self.encoder(source)
        mask_BS1 = source.mask_BS[:, :, None].to(states_BSD.device)
        mean_BD = (states_BSD * mask_BS1).sum(1) / mask_BS1.sum(1)
        first = tuple(torch.tanh(layer(mean_BD)) for layer in self.first)
        return EncoderOutput(states_BSD, source.mask_BS, Start(first, *self.attention.prepare(states_BSD)))

    def start(self, memory: EncoderOutput) -> CellState:
        return _map(memory.extra.state, lambda part: part.unsqueeze(1))

    def step(self, token_BW: Tensor, state: CellState, memory: EncoderOutput) -> tuple[Tensor, CellState]:
        x_BWE = self.stream.see("embed", self.embed(token_BW))
        top_TNE, after = self._run(x_BWE.flatten(0, 1)[None], _map(state, lambda part: part.flatten(0, 1)), memory)
        top_BWE = self.stream.see("top", top_TNE[0].unflatten(0, token_BW.shape))
        return self.output(top_BWE), _map(after, lambda part: part.unflatten(0, token_BW.shape))

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        x_BTE = self.stream.see("embed", self.embed(target_BT))
        top_TBE, _ = self._run(x_BTE.transpose(0, 1), memory.extra.state, memory)
        return self.output_drop(self.stream.see("top", top_TBE.transpose(0, 1)))

    def _run(self, x_TNE: Tensor, state: CellState, memory: EncoderOutput) -> tuple[Tensor, CellState]:
        """Run T steps of N rows from `state`; returns the inputs of the output layer and the last state."""
        source = KeyValue(memory.extra.keys_BSD, memory.states_BSD)
        mask_BS = mask_or_none(memory.mask_BS)

        def watch(seen: AttentionRecord) -> None:
            self._spread(seen, mask_BS)

        steps, state = self.attention.before_cell(
            self.cell,
            self.cell.input(self.drop(x_TNE)),
            state,
            source,
            mask_BS,
            gate=self.gate,
            watch=watch if self.training and self.regularization and is_collecting() else None,
        )
        context_TND = torch.stack([step.context_ND for step in steps])
        hidden_TND = torch.stack([step.hidden_ND for step in steps])
        return x_TNE + self.from_hidden(hidden_TND) + self.from_context(context_TND), state

    def _spread(self, seen: AttentionRecord, mask_BS: Tensor | None) -> None:
        """Add the loss of doubly stochastic attention: per token, since it is added to the mean loss per token."""
        weights_BTS, real_BT = seen.weights_BHTS[:, 0], target_mask()
        if real_BT is None:
            real_BT = torch.ones(weights_BTS.shape[:2], dtype=torch.bool, device=weights_BTS.device)
        missing_BS = 1 - (weights_BTS * real_BT[:, :, None]).sum(1)
        if mask_BS is not None:
            missing_BS = missing_BS.masked_fill(~mask_BS, 0.0)
        total = missing_BS.square().sum()
        tokens = token_total(int(real_BT.sum()), total.device)
        loss = self.regularization * total / tokens
        add_auxiliary(seen.name, loss, {"attention_per_patch": float(1 - missing_BS.detach().mean())})


def _map(state: CellState, change: Callable[[Tensor], Tensor]) -> CellState:
    return tuple(change(part) for part in state)
