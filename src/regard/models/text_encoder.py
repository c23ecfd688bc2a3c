"""An encoder of questions and answers: the pooled states of a Transformer encoder, one vector of length 1 per text.

The dot product of two vectors is the cosine of their angle, and measures how similar the texts are. Both sides of a
pair are encoded by the same weights (Reimers and Gurevych 2019), because most pairs consist of two questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.attention import AttentionPooling, MeanPooling
from regard.layers.dropout import Dropout
from regard.layers.init import glorot
from regard.layers.positional_encoding import position_layer
from regard.models.base import Example, ExampleSource, Network, Source, example_ids, visible
from regard.models.transformer import Embedding, Encoder
from regard.models.transformer_settings import TextEncoderSettings


class TextEncoder(Network):
    """Encoder, pooling, projection to a unit vector."""

    def __init__(self, settings: TextEncoderSettings, vocabulary: int):
        super().__init__()
        width = settings.width
        place = position_layer(settings.positional_encoding, "add", width, 0)
        self.encoder = Encoder(Embedding(vocabulary, settings, place), settings)
        self.pool: AttentionPooling | MeanPooling = (
            AttentionPooling(width, "pool") if settings.pool == "attention" else MeanPooling("pool")
        )
        self.drop = Dropout(settings.dropout)
        self.output = glorot(nn.Linear(width, settings.vector_size))

    def examples(self) -> Iterator[Example]:
        """Units: a text, a token, and pairs of tokens."""
        for size in (1, 2, 3):
            texts = ExampleSource(*example_ids(1, size))
            yield Example(partial(self, texts), {"text": 1, "token": size, "pair": size**2})

    def forward(self, texts: Source) -> Tensor:
        """Vectors of length one [B, V]."""
        states_BSD = self.encoder(texts).states_BSD
        pooled_BD = self.pool(states_BSD, self.pool.keys(states_BSD), visible(texts.mask_BS))
        return F.normalize(self.output(self.drop(pooled_BD)), dim=-1)
