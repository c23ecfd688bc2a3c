"""The hierarchical attention network: "Hierarchical Attention Networks for Document Classification", Yang et al. 2016.

A bidirectional GRU reads the words of a sentence; attention with a learned context vector pools its states into the
sentence vector. A second such level pools the sentences into the document vector, from which the labels are scored.

Departures: word vectors are learned with the model, not pretrained by word2vec; dropout (the paper has none) removes
the same features from all words, and from all sentences, of a document (Gal and Ghahramani 2016), so that a recurrent
state cannot recover the removed features from the next word; the reset gate acts after the recurrent product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from regard.config import ACTIVATIONS_PER_UNIT, ModelSettings
from regard.config.ranges import Share, Width
from regard.layers.attention import AttentionPooling
from regard.layers.dropout import Dropout
from regard.layers.hooks import AttentionRecord
from regard.layers.init import glorot
from regard.layers.inputs import Input, Pictures, input_layer
from regard.layers.rnn_cells import PackedGRU, PackedLayout
from regard.models.base import ClassifierModel, Documents, mask_or_none


@dataclass(frozen=True)
class HANSettings(ModelSettings):
    """Settings of the hierarchical attention network (Yang et al. 2016): attention over words, then over sentences."""

    kind: ClassVar[str] = "classifier"
    network: ClassVar[str] = "HAN"
    about: ClassVar[str] = "Hierarchical Attention Networks for Document Classification (Yang et al. 2016)"

    arch: str = "han"
    embedding_width: Width = 128
    """Width of the word embeddings."""
    width: Width = 64
    """Width of the GRU states per direction; the paper has 50."""
    dropout: Share = 0.4
    """Dropout on word, sentence and document vectors; the same features are dropped in all words of a document."""

    def kept_per_token(self, length: float) -> float:
        return ACTIVATIONS_PER_UNIT * 2 * 2 * self.width  # two levels, each in two directions


PRESETS: dict[str, ModelSettings] = {"han": HANSettings("han")}


class HANLevel(nn.Module):
    """Encodes each sequence (of words, or of sentences) as one vector: bidirectional GRU, then attention pooling.

    `name`: the name of its attention hook.
    """

    def __init__(self, inputs: int, width: int, dropout: float, name: str):
        super().__init__()
        self.drop = Dropout(dropout)
        self.rnn = PackedGRU(inputs, width)
        self.attention = AttentionPooling(2 * width, name)

    def forward(
        self, x_PD: Tensor, packing: PackedLayout, mask_NS: Tensor, document_P: Tensor, documents: int
    ) -> Tensor:
        """Encode N sequences of words (or of sentences) as vectors [N, D].

        `x_PD`: the vectors of all P words (or sentences), packed by `packing`. `mask_NS`: False for padding in the N
        sequences. `document_P`: for each of the P vectors, the index of its document among `documents` documents. All
        vectors of a document get the same dropout mask.
        """
        if self.training:
            keep_BD = self.drop(x_PD.new_ones(documents, x_PD.shape[-1]))
            x_PD = x_PD * keep_BD.index_select(0, document_P)
        states_PD = self.rnn(x_PD, packing.sizes)
        keys_PD = self.attention.keys(states_PD)
        return self.attention(packing.unpack(states_PD), packing.unpack(keys_PD), mask_or_none(mask_NS))


class HAN(ClassifierModel):
    """The HAN network: word vectors to sentence vectors, to document vectors, to scores of labels."""

    reads_vectors = True

    def __init__(self, settings: HANSettings, vocabulary: Input, labels: int):
        super().__init__()
        self.reads = vocabulary
        width, dropout = settings.width, settings.dropout
        self.embed: nn.Module
        if isinstance(vocabulary, int):
            self.embed = nn.Embedding(vocabulary, settings.embedding_width)
            nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        else:
            self.embed = input_layer(vocabulary, settings.embedding_width)
        self.words = HANLevel(settings.embedding_width, width, dropout, "word")
        self.sentences = HANLevel(2 * width, width, dropout, "sentence")
        self.drop = Dropout(dropout)
        self.output = glorot(nn.Linear(2 * width, labels))

    def encode(self, documents: Documents) -> Tensor:
        """Encode each document as one vector [B, D]: first all sentences of the batch, then the documents."""
        mask_BU = documents.mask_BUS.any(-1)
        rows, places = mask_BU.nonzero(as_tuple=True)
        mask_NS, ids_NS = documents.mask_BUS[rows, places], documents.ids_BUS[rows, places]
        words = PackedLayout(mask_NS)
        if isinstance(self.reads, Pictures):
            x_PE = words.pack(self.embed(ids_NS))
        else:
            x_PE = self.embed(words.pack(ids_NS))
        sentence_ND = self.words(x_PE, words, mask_NS, rows[words.row_P], len(mask_BU))
        order = PackedLayout(mask_BU)
        flat_of = mask_BU.flatten().cumsum(0) - 1  # index of each sentence among the real ones
        x_PD = sentence_ND.index_select(0, flat_of[order.place_P])
        return self.drop(self.sentences(x_PD, order, mask_BU, order.row_P, len(mask_BU)))

    def shading(self, tape: Mapping[str, AttentionRecord], documents: Documents) -> Tensor:
        """Return the weight [B, U, S] of each word: its weight in its sentence times the weight of the sentence.

        `tape` has the attention records of a forward pass, by the name of the hook.
        """
        mask_BU = documents.mask_BUS.any(-1)
        word_NS = tape["word"].weights_BHTS[:, 0, 0]
        sentence_BU = tape["sentence"].weights_BHTS[:, 0, 0]
        shares_BUS = word_NS.new_zeros(documents.mask_BUS.shape)
        shares_BUS[mask_BU] = word_NS * sentence_BU[mask_BU][:, None]
        return shares_BUS
