"""A classifier that reads with the Transformer's encoder and pools its states into one vector per document.

A long document is given as windows of whole sentences. Each window is encoded separately, with its own positions, so
that the cost grows linearly with the length; pooling covers the tokens of all windows. No part of a document is lost to
a limit on positions, but words in different windows do not attend to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from regard.config import ModelSettings
from regard.config.ranges import Count, EvenWidth, Layers, Range, Share, Width
from regard.layers.attention import AttentionPooling, MeanPooling
from regard.layers.dropout import Dropout
from regard.layers.hooks import AttentionRecord
from regard.layers.init import glorot
from regard.layers.positional_encoding import position_layer
from regard.models.base import ClassifierModel, Documents
from regard.models.transformer import Embedding, Encoder
from regard.models.transformer_settings import EncoderSettings


@dataclass(frozen=True)
class TransformerClassifierSettings(EncoderSettings):
    """A Transformer encoder whose states are pooled into one vector per document."""

    kind: ClassVar[str] = "classifier"
    network: ClassVar[str] = "TransformerClassifier"
    about: ClassVar[str] = (
        "the encoder of Attention Is All You Need (Vaswani et al. 2017), pooled into one vector per document"
    )

    arch: str = "transformer-classifier"
    encoder_layers: Layers = 2
    width: EvenWidth = 128
    heads: Count = 4
    ffn_width: Width = 256
    dropout: Share = 0.3
    norm: Literal["post", "pre"] = "pre"
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "gelu"
    positional_encoding: Literal["sinusoidal", "rotary", "none"] = "sinusoidal"
    pool: Literal["attention", "mean"] = "attention"
    """How the states of a document become one: weighted by attention with a learned query, or their mean."""
    window_tokens: Annotated[int, Range(8)] = 128
    """Documents are read in windows of whole sentences with at most this many tokens; all are pooled together."""

    @property
    def document_window(self) -> int:
        """See `window_tokens`."""
        return self.window_tokens


PRESETS: dict[str, ModelSettings] = {"transformer-classifier": TransformerClassifierSettings("transformer-classifier")}


class WindowLayout(NamedTuple):
    """Windows of text as the encoder reads them."""

    ids_BS: Tensor
    mask_BS: Tensor


class TransformerClassifier(ClassifierModel):
    """Encoder, pooling, scores of labels."""

    def __init__(self, settings: TransformerClassifierSettings, vocabulary: int, labels: int):
        super().__init__()
        width = settings.width
        place = position_layer(settings.positional_encoding, "add", width, 0)
        self.encoder = Encoder(Embedding(vocabulary, settings, place), settings)
        self.pool: AttentionPooling | MeanPooling = (
            AttentionPooling(width, "pool") if settings.pool == "attention" else MeanPooling("pool")
        )
        self.drop = Dropout(settings.dropout)
        self.output = glorot(nn.Linear(width, labels))

    def encode(self, documents: Documents) -> Tensor:
        """Read every window, then pool.

        Windows of one place stand together, row for row as in the batch: so processes that share its rows draw the
        same dropout as one would (layers/dropout.py). A window of padding alone reads one token, which is not pooled.
        """
        rows, windows, _ = documents.ids_BUS.shape
        ids_NS, mask_NS = (x.transpose(0, 1).flatten(0, 1) for x in (documents.ids_BUS, documents.mask_BUS))
        seen_NS = mask_NS.clone()
        seen_NS[:, 0] = True
        states_NSD = self.encoder(WindowLayout(ids_NS, seen_NS)).states_BSD
        states_BTD = states_NSD.unflatten(0, (windows, rows)).transpose(0, 1).flatten(1, 2)
        mask_BT = documents.mask_BUS.flatten(1).to(states_BTD.device)
        return self.drop(self.pool(states_BTD, self.pool.keys(states_BTD), mask_BT))

    def shading(self, tape: Mapping[str, AttentionRecord], documents: Documents) -> Tensor:
        """The weights of the pooling."""
        return tape["pool"].weights_BHTS[:, 0, 0].view(documents.mask_BUS.shape)
