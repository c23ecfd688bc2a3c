"""A masked language model: "BERT: Pre-training of Deep Bidirectional Transformers", Devlin et al. 2019.

The Transformer's encoder reads a text in which some tokens are hidden, and predicts the hidden ones from the words on
both sides. Only the hidden positions pass through the output layer. Classifiers and text encoders can start from the
trained encoder (`train.start_from`), because its weights have the same names there.

Departures: no prediction of the next sentence and no segment embeddings (Liu et al. 2019, RoBERTa); pre-norm and rotary
positions, which small networks learn faster; the embeddings and the output share one matrix, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import ModelSettings
from regard.config.ranges import Count, EvenWidth, Layers, Share, Width
from regard.layers.init import glorot
from regard.layers.positional_encoding import position_layer
from regard.models.base import Example, Network, Source
from regard.models.transformer import Embedding, Encoder
from regard.models.transformer_settings import SmallEncoderSettings


@dataclass(frozen=True)
class MaskedEncoderSettings(SmallEncoderSettings):
    """Settings of a masked language model: a Transformer encoder; embeddings and output share one matrix."""

    kind: ClassVar[str] = "masked-encoder"
    network: ClassVar[str] = "MaskedLanguageModel"
    has_encoder: ClassVar[bool] = True
    about: ClassVar[str] = "BERT: Pre-training of Deep Bidirectional Transformers (Devlin et al. 2019), without NSP"

    arch: str = "masked-lm"
    encoder_layers: Layers = 4
    width: EvenWidth = 256
    heads: Count = 4
    ffn_width: Width = 1024
    dropout: Share = 0.1
    positional_encoding: Literal["sinusoidal", "rotary", "none"] = "rotary"


PRESETS: dict[str, ModelSettings] = {"masked-lm": MaskedEncoderSettings()}


class MaskedLanguageModel(Network):
    """Transformer encoder; then, at the hidden positions, a layer with GELU and norm, and scores of all tokens."""

    def __init__(self, settings: MaskedEncoderSettings, vocabulary: int):
        super().__init__()
        positions = position_layer(settings.positional_encoding, "add", settings.width, 0)
        embed = Embedding(vocabulary, settings, positions)
        self.encoder = Encoder(embed, settings)
        self.transform = glorot(nn.Linear(settings.width, settings.width))
        self.norm = nn.LayerNorm(settings.width)
        self.output = nn.Linear(settings.width, vocabulary)
        self.output.weight = embed.tokens.weight
        nn.init.zeros_(self.output.bias)

    def hidden(self, source: Source, chosen_BS: Tensor) -> Tensor:
        """The states [N, D], ready for the output layer, at the N positions where `chosen_BS` is True."""
        states_BSD = self.encoder(source).states_BSD
        row_N, place_N = (index_N.to(states_BSD.device) for index_N in chosen_BS.nonzero(as_tuple=True))
        return self.norm(F.gelu(self.transform(states_BSD[row_N, place_N])))

    def forward(self, source: Source, chosen_BS: Tensor) -> Tensor:
        """Scores (logits) [N, V] of all tokens at the N positions where `chosen_BS` is True, row by row."""
        return self.output(self.hidden(source, chosen_BS))

    def examples(self) -> Iterator[Example]:
        """Small forward passes for `training/flops.py`, which computes from them the number of operations per unit.

        Units: tokens, pairs of tokens, and predicted tokens.
        """
        for size, predicted in ((2, 1), (2, 2), (3, 1)):
            source = self.example_input("BS", 1, size)
            chosen_BS = source.mask_BS.clone()
            chosen_BS[:, predicted:] = False
            yield Example(partial(self, source, chosen_BS), {"token": size, "pair": size**2, "predicted": predicted})
