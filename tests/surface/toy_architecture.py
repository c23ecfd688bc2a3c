"""A plugin: a small architecture outside Regard. It adds the mean of the source embeddings to a GRU over the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard import registry
from regard.config import ModelSettings
from regard.config.ranges import Share, Width
from regard.models.base import EncoderOutput, Seq2Seq, Source


@dataclass(frozen=True)
class ToySettings(ModelSettings):
    """Mean of the source, GRU over the target."""

    kind: ClassVar[str] = "seq2seq"
    network: ClassVar[str] = "Toy"
    about: ClassVar[str] = "a toy"

    arch: str = "toy"
    width: Width = 32
    """Width of embeddings and states."""
    dropout: Share = 0.0
    """Dropout on the states."""

    @property
    def attends(self) -> bool:
        """There is no attention."""
        return False


PRESETS = {"toy": ToySettings("toy")}
registry.ARCHITECTURES["toy"] = __name__


class Toy(Seq2Seq):
    """See above."""

    def __init__(self, settings: ToySettings, source_vocabulary: int, target_vocabulary: int):
        super().__init__()
        self.source = nn.Embedding(source_vocabulary, settings.width)
        self.target = nn.Embedding(target_vocabulary, settings.width)
        self.cell = nn.GRUCell(settings.width, settings.width)
        self.drop = nn.Dropout(settings.dropout)
        self.output = nn.Linear(settings.width, target_vocabulary)

    def encode(self, source: Source) -> EncoderOutput:
        """The mean of the embeddings of each sentence, as its only state."""
        weights_BS1 = source.mask_BS.unsqueeze(-1).to(self.source.weight)  # dtype and device
        mean_B1D = (self.source(source.ids_BS) * weights_BS1).sum(1, keepdim=True) / weights_BS1.sum(1, keepdim=True)
        return EncoderOutput(mean_B1D, source.mask_BS[:, :1])

    def start(self, memory: EncoderOutput) -> tuple[Tensor]:
        """The decoder starts from the mean."""
        return (memory.states_BSD,)

    def step(self, token_BW: Tensor, state: tuple[Tensor], memory: EncoderOutput) -> tuple[Tensor, tuple[Tensor]]:
        """One token further."""
        x_BWD = self.target(token_BW) + memory.states_BSD
        state_BWD = self.cell(x_BWD.flatten(0, 1), state[0].flatten(0, 1)).view_as(x_BWD)
        return self.output(self.drop(state_BWD)), (state_BWD,)

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        """The states after each token of the target."""
        state_BD, states = memory.states_BSD[:, 0], []
        for x_BD in (self.target(target_BT) + memory.states_BSD).unbind(1):
            state_BD = self.cell(x_BD, state_BD)
            states.append(state_BD)
        return self.drop(torch.stack(states, dim=1))
