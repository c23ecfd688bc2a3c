"""A classifier that reads with the Transformer's encoder and pools its states into one vector a document.

A long document is handed in as windows of whole sentences. Each window is read on its own, with positions of its own,
which costs no more for a long document than its length says; the pooling then sees the tokens of all windows together.
So nothing of a document is lost to a limit on positions, but words in different windows do not see each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

from regard.layers.dropout import Dropout
from regard.layers.hooks import AttentionRecord
from regard.layers.init import glorot
from regard.layers.pooling import AttentionPooling, MeanPooling
from regard.layers.positional_encoding import position_layer
from regard.models.base import ClassifierModel, Documents
from regard.models.transformer import Embedding, Encoder, Shape


class WindowLayout(NamedTuple):
    """Windows of text as the encoder reads them."""

    ids_BS: Tensor
    mask_BS: Tensor


class TransformerClassifier(ClassifierModel):
    """Encoder, pooling, scores."""

    def __init__(
        self,
        vocabulary: int,
        labels: int,
        *,
        encoder_layers: int,
        width: int,
        heads: int,
        inner: int,
        dropout: float,
        norm: str,
        activation: str,
        positions: str,
        pool: str,
    ):
        super().__init__()
        shape = Shape(width, heads, width // heads, inner, dropout, norm, activation, positions == "rotary", window=0)
        place = position_layer(positions, "add", width, 0)
        self.encoder = Encoder(Embedding(vocabulary, shape, place), encoder_layers, shape)
        self.pool: AttentionPooling | MeanPooling = (
            AttentionPooling(width, "pool") if pool == "attention" else MeanPooling("pool")
        )
        self.drop = Dropout(dropout)
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
