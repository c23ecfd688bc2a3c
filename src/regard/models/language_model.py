"""The decoder of the Transformer alone, as a language model: P(text) = product of P(token | tokens before it).

It is a `Seq2Seq` with an empty source, so that all searches and training with teacher forcing work without changes.
Blocks have masked self-attention and a feed-forward network; there is no cross-attention (Radford et al. 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from regard.config import ACTIVATIONS_PER_UNIT, ModelSettings
from regard.config.ranges import Count, EvenWidth, Layers, Share, Width
from regard.layers.hooks import HiddenStateHook
from regard.layers.positional_encoding import position_layer
from regard.models.base import EncoderOutput, LayerStack, Seq2Seq, Source
from regard.models.transformer import Embedding, EncoderBlock, State, last_norm
from regard.models.transformer_settings import BlockSettings, ExpertBlockSettings


@dataclass(frozen=True)
class LanguageModelSettings(ExpertBlockSettings, BlockSettings):
    """Settings of a language model: a Transformer decoder without a source; embeddings and output share one matrix."""

    kind: ClassVar[str] = "decoder"
    network: ClassVar[str] = "LanguageModel"
    about: ClassVar[str] = (
        "the decoder of Attention Is All You Need (Vaswani et al. 2017) as a language model (Radford et al. 2018)"
    )

    arch: str = "transformer-lm"
    layers: Layers = 4
    """Number of decoder blocks."""
    width: EvenWidth = 256
    heads: Count = 4
    ffn_width: Width = 1024
    dropout: Share = 0.1
    norm: Literal["post", "pre"] = "pre"
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "gelu"
    positional_encoding: Literal["sinusoidal", "rotary", "none"] = "rotary"

    @property
    def depths(self) -> tuple[int, ...]:
        return (self.layers,)

    def kept_per_token(self, length: float) -> float:
        return ACTIVATIONS_PER_UNIT * self.layers * self.width


PRESETS: dict[str, ModelSettings] = {"transformer-lm": LanguageModelSettings()}


class LanguageModel(Seq2Seq):
    """A Transformer decoder without cross-attention: each token attends to itself and to the tokens before it."""

    def __init__(self, settings: LanguageModelSettings, vocabulary: int):
        super().__init__()
        positions = position_layer(settings.positional_encoding, "add", settings.width, 0)
        self.embed = Embedding(vocabulary, settings, positions)
        self.decoder = LayerStack(
            EncoderBlock(settings, f"decoder.{layer}", causal=True) for layer in range(settings.layers)
        )
        self.norm = last_norm(settings)
        self.output = nn.Linear(settings.width, vocabulary, bias=False)
        self.output.weight = self.embed.tokens.weight
        self.stream = HiddenStateHook("decoder")

    def encode(self, source: Source) -> EncoderOutput:
        """Return an empty memory with as many rows as the source; the tokens of the source are not read."""
        return EncoderOutput(self.output.weight.new_zeros(source.ids_BS.shape[0], 0, 0), source.mask_BS)

    def start(self, memory: EncoderOutput) -> State:
        return State(tuple(block.self_attention.start(memory.states_BSD.shape[0], 1) for block in self.decoder))

    def step(self, token_BW: Tensor, state: State, memory: EncoderOutput) -> tuple[Tensor, State]:
        position = state.caches[0].length  # of the tokens of all hypotheses
        x_BWD = self.embed(token_BW.flatten()[:, None], position).view(*token_BW.shape, -1)
        x_BWD = self.stream.see("embed", x_BWD)
        caches = []
        for layer, (block, cache) in enumerate(zip(self.decoder, state.caches, strict=True)):
            x_BWD, cache = block.step(x_BWD, cache)
            x_BWD = self.stream.see(layer, x_BWD)
            caches.append(cache)
        return self.output(self.stream.see("top", self.norm(x_BWD))), State(tuple(caches))

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        x_BTD = self.stream.see("embed", self.embed(target_BT))
        for layer, block in enumerate(self.decoder):
            x_BTD = self.stream.see(layer, block(x_BTD))
        return self.stream.see("top", self.norm(x_BTD))
