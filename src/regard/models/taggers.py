"""BiGRU-CRF and Transformer-CRF: two taggers, which assign a label to every word.

Both encode each word from its characters (layers/char_cnn.py), then the words of the sentence, and end in a
linear-chain CRF over labels (layers/crf.py).

`BiGRUCRF` is the bidirectional LSTM-CRF of Huang et al. 2015 with the character CNN of Ma and Hovy 2016. Departures:
GRUs instead of LSTMs; whole-word vectors are selected by a hash and learned with the model, not pretrained; they are
dropped at random in training, so that the model learns to label unknown words by their spelling. `TransformerCRF` has
Transformer encoder blocks instead of GRUs, so that attention between words can be inspected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from regard.config import ACTIVATIONS_PER_UNIT, ModelSettings
from regard.config.ranges import Count, Layers, Share, Width
from regard.errors import ModelError
from regard.layers.char_cnn import CharacterWordEncoder
from regard.layers.crf import LinearChainCRF
from regard.layers.dropout import Dropout
from regard.layers.init import glorot
from regard.layers.inputs import FrameInput, Frames, Input, Pictures
from regard.layers.positional_encoding import position_layer
from regard.layers.rnn_cells import PackedGRU, PackedLayout
from regard.models.base import LayerStack, TaggerModel, Words, mask_or_none
from regard.models.transformer import EncoderBlock, last_norm
from regard.models.transformer_settings import SmallEncoderSettings


@dataclass(frozen=True)
class WordEncoderSettings(ModelSettings):
    """Settings of the word encoder of a tagger, which reads characters or subwords, and a table of whole words."""

    char_embedding: Width = 32
    """Width of the embeddings of characters or subwords."""
    char_cnn_width: Width = 100
    """Width of the word vector that is computed from characters or subwords."""
    word_hash_rows: Count = 32_768
    """Number of rows of the whole-word embedding table; the hash of a word selects its rows."""
    embedding_width: Width = 100
    """Width of the whole-word embeddings."""
    word_dropout: Share = 0.2
    """Share of words whose whole-word embedding is dropped in training, so that the model learns from spelling."""


@dataclass(frozen=True)
class BiGRUCRFSettings(WordEncoderSettings):
    """Settings of a tagger: word vectors from characters or subwords, bidirectional GRUs, and a CRF over the labels."""

    kind: ClassVar[str] = "tagger"
    network: ClassVar[str] = "BiGRUCRF"
    about: ClassVar[str] = "Bidirectional LSTM-CRF Models for Sequence Tagging (Huang et al. 2015), with GRUs"

    arch: str = "bigru-crf"
    layers: Layers = 1
    """Number of GRU layers over words."""
    width: Width = 128
    """Width of the GRU states per direction."""
    dropout: Share = 0.5
    """Dropout on the input of each layer and on the last states."""

    def kept_per_token(self, length: float) -> float:
        # Each layer in both directions; the spelling of a word counts as one more layer.
        return ACTIVATIONS_PER_UNIT * (self.layers + 1) * 2 * self.width


@dataclass(frozen=True)
class TransformerCRFSettings(SmallEncoderSettings, WordEncoderSettings):
    """Settings of a tagger: word vectors from characters or subwords, Transformer blocks, and a CRF over the labels."""

    kind: ClassVar[str] = "tagger"
    network: ClassVar[str] = "TransformerCRF"
    about: ClassVar[str] = (
        "Bidirectional LSTM-CRF Models for Sequence Tagging (Huang et al. 2015), with Transformer encoder blocks"
    )

    arch: str = "transformer-crf"
    encoder_layers: Layers = 3
    dropout: Share = 0.3
    """Dropout on word vectors, on the output of each sub-layer and on the last states."""


PRESETS: dict[str, ModelSettings] = {
    "bigru-crf": BiGRUCRFSettings("bigru-crf"),
    "transformer-crf": TransformerCRFSettings("transformer-crf"),
}


WordEncoder = CharacterWordEncoder | FrameInput


class BiGRUCRF(TaggerModel):
    """A tagger: word encoder, bidirectional GRU layers over the words of a sentence, CRF over their labels."""

    reads_vectors = True

    def __init__(self, settings: BiGRUCRFSettings, vocabulary: Input, labels: int):
        super().__init__()
        self.reads = vocabulary
        width = settings.width
        self.word_encoder = _build_word_encoder(settings, vocabulary)
        inputs = [self.word_encoder.width] + [2 * width] * (settings.layers - 1)
        self.layers = LayerStack(PackedGRU(each, width) for each in inputs)
        self.drop = Dropout(settings.dropout)
        self.output = glorot(nn.Linear(2 * width, labels))
        self.crf = LinearChainCRF(labels)

    def encode(self, sentences: Words) -> Tensor:
        packing = PackedLayout(sentences.mask_BTS[:, :, 0])
        x_BTD = self.drop(_encode_words(self.word_encoder, sentences))
        for layer in self.layers:
            x_BTD = self.drop(packing.unpack(layer(packing.pack(x_BTD), packing.sizes)))
        return x_BTD


class TransformerCRF(TaggerModel):
    """A tagger: word encoder, Transformer encoder blocks over the words of a sentence, CRF over their labels."""

    reads_vectors = True

    def __init__(self, settings: TransformerCRFSettings, vocabulary: Input, labels: int):
        super().__init__()
        self.reads = vocabulary
        width = settings.width
        self.word_encoder = _build_word_encoder(settings, vocabulary)
        self.project = glorot(nn.Linear(self.word_encoder.width, width))
        self.positions = position_layer(settings.positional_encoding, "add", width, 0)
        self.blocks = LayerStack(EncoderBlock(settings, f"encoder.{layer}") for layer in range(settings.encoder_layers))
        self.norm = last_norm(settings)
        self.drop = Dropout(settings.dropout)
        self.output = glorot(nn.Linear(width, labels))
        self.crf = LinearChainCRF(labels)

    def encode(self, sentences: Words) -> Tensor:
        mask_BT = mask_or_none(sentences.mask_BTS[:, :, 0])
        x_BTD = self.project(self.drop(_encode_words(self.word_encoder, sentences)))
        x_BTD = self.drop(self.positions(x_BTD))
        for block in self.blocks:
            x_BTD = block(x_BTD, mask_BT)
        return self.drop(self.norm(x_BTD))


def _build_word_encoder(settings: WordEncoderSettings, source: Input) -> WordEncoder:
    """The layer that encodes each word from its pieces, or each frame."""
    if isinstance(source, Frames):
        return FrameInput(source, settings.embedding_width)
    if isinstance(source, Pictures):
        raise ModelError("a tagger labels words or frames, not the patches of a picture")
    return CharacterWordEncoder(
        source,
        piece=settings.char_embedding,
        spelling=settings.char_cnn_width,
        words=settings.word_hash_rows,
        embedding=settings.embedding_width,
        word_dropout=settings.word_dropout,
    )


def _encode_words(encoder: WordEncoder, sentences: Words) -> Tensor:
    """The vectors [B, T, D] of all words or frames."""
    if isinstance(encoder, CharacterWordEncoder):
        return encoder(sentences.ids_BTS, sentences.mask_BTS)
    return encoder(sentences.ids_BTS)
