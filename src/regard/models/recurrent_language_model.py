"""A recurrent language model: "Recurrent Neural Network Regularization", Zaremba et al. 2014.

Layers of LSTM (or GRU) cells read the tokens from left to right; the state after a token predicts the next one. Dropout
is on the inputs of the layers and on the output, not on recurrent states. The embeddings and the output share one
matrix (Press and Wolf 2017). With `experts`, a mixture of experts stands below the top layer, as in the language models
of Shazeer et al. 2017.

As the Transformer's language model, it is a `Seq2Seq` with an empty source. Departures: every text, and every window of
a long text, starts from a state of zeros; initial weights are those of all recurrent models (recurrent.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from regard.config import ModelSettings
from regard.config.ranges import Layers, Share, require
from regard.layers.dropout import Dropout
from regard.layers.hooks import HiddenStateHook
from regard.models.base import EncoderOutput, Seq2Seq, Source, TokenEmbedding
from regard.models.recurrent import RecurrentLayerSettings, RecurrentStack, RecurrentState, beams_to_rows
from regard.models.transformer_settings import EXPERTS_PAPER


@dataclass(frozen=True)
class RecurrentLanguageModelSettings(RecurrentLayerSettings):
    """Settings of a recurrent language model; embeddings and output share one matrix."""

    kind: ClassVar[str] = "decoder"
    network: ClassVar[str] = "RecurrentLanguageModel"
    about: ClassVar[str] = "Recurrent Neural Network Regularization (Zaremba et al. 2014)"

    arch: str = "lstm-lm"
    cell: Literal["lstm", "gru"] = "lstm"
    layers: Layers = 2
    """Number of recurrent layers."""
    dropout: Share = 0.3
    """Dropout on the inputs of all layers and on the output of the top layer."""

    def check(self) -> None:
        self.check_experts()
        require(
            not self.experts or self.layers > 1,
            "model.experts: experts stand between two layers; set model.layers to 2 or more",
        )

    @property
    def attends(self) -> bool:
        return False

    def paper(self) -> str:
        return f"{self.about}, with {EXPERTS_PAPER}" if self.experts else self.about

    def kept_per_token(self, length: float) -> float:
        expert = self.active_experts * (self.expert_width + 2 * self.width) if self.experts else 0
        return 8 * self.width * self.layers + 4 * self.width + expert


PRESETS: dict[str, ModelSettings] = {"lstm-lm": RecurrentLanguageModelSettings()}


class RecurrentLanguageModel(Seq2Seq):
    """Embeddings, recurrent layers and an output layer; the source is empty."""

    def __init__(self, settings: RecurrentLanguageModelSettings, vocabulary: int):
        super().__init__()
        self.embed = TokenEmbedding(vocabulary, settings.width)
        self.decoder = RecurrentStack(settings, range(1, settings.layers + 1), settings.width)
        self.drop = Dropout(settings.dropout)
        self.output = nn.Linear(settings.width, vocabulary, bias=False)
        self.output.weight = self.embed.tokens.weight
        self.stream = HiddenStateHook("decoder")

    def encode(self, source: Source) -> EncoderOutput:
        """Return an empty memory with as many rows as the source; the tokens of the source are not read."""
        return EncoderOutput(self.output.weight.new_zeros(source.ids_BS.shape[0], 0, 0), source.mask_BS)

    def start(self, memory: EncoderOutput) -> RecurrentState:
        rows, cells = memory.states_BSD.shape[0], self.decoder.cells
        return RecurrentState(tuple(tuple(part.unsqueeze(1) for part in cell.start(rows)) for cell in cells))

    def step(self, token_BW: Tensor, state: RecurrentState, memory: EncoderOutput) -> tuple[Tensor, RecurrentState]:
        x_BWE = self.stream.see("embed", self.embed(token_BW))
        top_1ND, layers = self.decoder(x_BWE.flatten(0, 1)[None], state.map(beams_to_rows).layers)
        top_BWD = self.stream.see("top", top_1ND[0].unflatten(0, token_BW.shape))
        return self.output(top_BWD), RecurrentState(layers).map(lambda part: part.unflatten(0, token_BW.shape))

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        x_BTE = self.stream.see("embed", self.embed(target_BT))
        top_TBD, _ = self.decoder(x_BTE.transpose(0, 1), self.start(memory).map(beams_to_rows).layers)
        return self.drop(self.stream.see("top", top_TBD.transpose(0, 1)))
