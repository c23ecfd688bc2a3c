"""Transformer encoders whose states are pooled into one vector: a classifier of documents and an encoder of texts.

`TransformerClassifier` reads a long document as windows of whole sentences. Each window is encoded separately, with its
own positions, so that the cost grows linearly with the length; then the tokens of all windows are pooled. There is no
limit on the length of a document, but words in different windows do not attend to each other.

`TextEncoder` (Reimers and Gurevych 2019) encodes questions and answers as vectors of length 1, so that the dot product
of two vectors is the cosine of their angle and measures how similar the texts are. The same weights encode both texts
of a pair, because most pairs consist of two questions. The settings are in transformer_settings.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Annotated, ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import ModelSettings
from regard.config.ranges import Layers, Range
from regard.layers.attention import AttentionPooling, MeanPooling
from regard.layers.dropout import Dropout
from regard.layers.hooks import AttentionRecord
from regard.layers.init import glorot
from regard.layers.inputs import Input
from regard.layers.positional_encoding import position_layer
from regard.models.base import ClassifierModel, Documents, Example, Network, Source, grid_of, mask_or_none
from regard.models.transformer import Encoder, source_embedding
from regard.models.transformer_settings import SmallEncoderSettings, TextEncoderSettings


@dataclass(frozen=True)
class TransformerClassifierSettings(SmallEncoderSettings):
    """Settings of a document classifier: a Transformer encoder whose states are pooled into one vector per document."""

    kind: ClassVar[str] = "classifier"
    network: ClassVar[str] = "TransformerClassifier"
    has_encoder: ClassVar[bool] = True
    about: ClassVar[str] = (
        "the encoder of Attention Is All You Need (Vaswani et al. 2017), pooled into one vector per document"
    )

    arch: str = "transformer-classifier"
    encoder_layers: Layers = 2
    pool: Literal["attention", "mean"] = "attention"
    """How the token states of a document are pooled into one vector: attention with a learned query, or the mean."""
    window_tokens: Annotated[int, Range(8)] = 128
    """Documents are split into windows of whole sentences with at most this many tokens, and encoded by window."""

    @property
    def document_window(self) -> int:
        return self.window_tokens


PRESETS: dict[str, ModelSettings] = {"transformer-classifier": TransformerClassifierSettings("transformer-classifier")}


def pooled_parts(
    settings: TransformerClassifierSettings | TextEncoderSettings, source: Input, outputs: int
) -> tuple[Encoder, AttentionPooling | MeanPooling, Dropout, nn.Linear]:
    """Build encoder, pooling layer, dropout and the last linear layer, from the width of the model to `outputs`."""
    width = settings.width
    grid = grid_of(source)
    place = position_layer(settings.positional_encoding, "add", width, 0, grid)
    encoder = Encoder(source_embedding(source, settings, place), settings, grid)
    pool = AttentionPooling(width, "pool") if settings.pool == "attention" else MeanPooling("pool")
    return encoder, pool, Dropout(settings.dropout), glorot(nn.Linear(width, outputs))


class TransformerClassifier(ClassifierModel):
    """A document classifier: Transformer encoder, pooling of all token states, scores of labels."""

    reads_vectors = True

    def __init__(self, settings: TransformerClassifierSettings, vocabulary: Input, labels: int):
        super().__init__()
        self.reads = vocabulary
        self.encoder, self.pool, self.drop, self.output = pooled_parts(settings, vocabulary, labels)

    def encode(self, documents: Documents) -> Tensor:
        """Encode each document as one vector [B, D]: encode every window, then pool the tokens of all its windows.

        The encoder gets the first windows of all documents in the order of the batch, then all second windows, and so
        on. So several processes that share the rows of a batch use the same dropout masks as one process
        (layers/dropout.py). In a window that is only padding, the first token is encoded but not pooled.
        """
        rows, windows, _ = documents.mask_BUS.shape
        ids_NS, mask_NS = (x.transpose(0, 1).flatten(0, 1) for x in (documents.ids_BUS, documents.mask_BUS))
        seen_NS = mask_NS.clone()
        seen_NS[:, 0] = True
        states_NSD = self.encoder(SimpleNamespace(ids_BS=ids_NS, mask_BS=seen_NS)).states_BSD
        states_BTD = states_NSD.unflatten(0, (windows, rows)).transpose(0, 1).flatten(1, 2)
        mask_BT = documents.mask_BUS.flatten(1).to(states_BTD.device)
        return self.drop(self.pool(states_BTD, self.pool.keys(states_BTD), mask_BT))

    def shading(self, tape: Mapping[str, AttentionRecord], documents: Documents) -> Tensor:
        return tape["pool"].weights_BHTS[:, 0, 0].view(documents.mask_BUS.shape)


class TextEncoder(Network):
    """A text encoder for retrieval: Transformer encoder, pooling, and projection to a vector of length 1."""

    reads_vectors = True

    def __init__(self, settings: TextEncoderSettings, vocabulary: Input):
        super().__init__()
        self.reads = vocabulary
        self.encoder, self.pool, self.drop, self.output = pooled_parts(settings, vocabulary, settings.vector_size)

    def examples(self) -> Iterator[Example]:
        """Small forward passes for `training/flops.py`, which computes from them the number of operations per unit.

        Units: texts, tokens, and pairs of tokens.
        """
        for size in (1, 2, 3):
            amounts = {"text": 1, "token": size, "pair": size**2}
            yield Example(partial(self, self.example_input("BS", 1, size)), amounts)

    def forward(self, texts: Source) -> Tensor:
        """Encode each text as one vector of Euclidean length 1: [B, model.vector_size]."""
        states_BSD = self.encoder(texts).states_BSD
        pooled_BD = self.pool(states_BSD, self.pool.keys(states_BSD), mask_or_none(texts.mask_BS))
        return F.normalize(self.output(self.drop(pooled_BD)), dim=-1)
