"""Taggers: a label for every word. Both read words from their pieces (layers/char_cnn.py), then each word among the
others, and end in a chain over labels (layers/crf.py).

`RecurrentTagger` reads with GRUs from both ends: the bidirectional LSTM with a CRF of Huang et al. 2015, and the
spelling of Ma and Hovy 2016. Departures: GRUs for LSTMs; vectors of whole words are found by hashing and learnt with
the rest, not pretrained; they are hidden at random so that the spelling must do for unknown words. `EncoderTagger` has
the Transformer's encoder blocks instead of GRUs, so that attention between words can be looked at.
"""

from __future__ import annotations

from torch import Tensor, nn

from regard.layers.char_cnn import CharacterWordEncoder
from regard.layers.crf import LinearChainCRF
from regard.layers.dropout import Dropout
from regard.layers.init import glorot
from regard.layers.positional_encoding import position_layer
from regard.layers.rnn_cells import PackedGRU, PackedLayout
from regard.models.base import LayerNames, TaggerModel, Words, visible
from regard.models.transformer import EncoderBlock, Shape


class BiGRUCRF(TaggerModel):
    """Spelling, GRUs from both ends, chain."""

    def __init__(
        self,
        vocabulary: int,
        labels: int,
        *,
        piece: int,
        spelling: int,
        words: int,
        embedding: int,
        word_dropout: float,
        layers: int,
        width: int,
        dropout: float,
    ):
        super().__init__()
        self.read = CharacterWordEncoder(
            vocabulary, piece=piece, spelling=spelling, words=words, embedding=embedding, word_dropout=word_dropout
        )
        inputs = [self.read.width] + [2 * width] * (layers - 1)
        self.layers = LayerNames(PackedGRU(each, width) for each in inputs)
        self.drop = Dropout(dropout)
        self.output = glorot(nn.Linear(2 * width, labels))
        self.chain = LinearChainCRF(labels)

    def encode(self, sentences: Words) -> Tensor:
        """Read the words, then the sentences."""
        packing = PackedLayout(sentences.mask_BTS[:, :, 0])
        x_BTD = self.drop(self.read(sentences.ids_BTS, sentences.mask_BTS))
        for layer in self.layers:
            x_BTD = self.drop(packing.unpack(layer(packing.pack(x_BTD), packing.sizes)))
        return x_BTD


class TransformerCRF(TaggerModel):
    """Spelling, encoder blocks, chain."""

    def __init__(
        self,
        vocabulary: int,
        labels: int,
        *,
        piece: int,
        spelling: int,
        words: int,
        embedding: int,
        word_dropout: float,
        encoder_layers: int,
        width: int,
        heads: int,
        inner: int,
        dropout: float,
        activation: str,
        positions: str,
    ):
        super().__init__()
        self.read = CharacterWordEncoder(
            vocabulary, piece=piece, spelling=spelling, words=words, embedding=embedding, word_dropout=word_dropout
        )
        self.enter = glorot(nn.Linear(self.read.width, width))
        self.positions = position_layer(positions, "add", width, 0)
        rotary = positions == "rotary"
        shape = Shape(width, heads, width // heads, inner, dropout, "before", activation, rotary, window=0)
        self.blocks = LayerNames(EncoderBlock(shape, f"encoder.{layer}") for layer in range(encoder_layers))
        self.norm = nn.LayerNorm(width)
        self.drop = Dropout(dropout)
        self.output = glorot(nn.Linear(width, labels))
        self.chain = LinearChainCRF(labels)

    def encode(self, sentences: Words) -> Tensor:
        """Read the words, then let them look at each other."""
        mask_BT = visible(sentences.mask_BTS[:, :, 0])
        x_BTD = self.enter(self.drop(self.read(sentences.ids_BTS, sentences.mask_BTS)))
        x_BTD = self.drop(self.positions(x_BTD))
        for block in self.blocks:
            x_BTD = block(x_BTD, mask_BT)
        return self.drop(self.norm(x_BTD))
