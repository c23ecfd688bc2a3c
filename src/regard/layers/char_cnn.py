"""Character CNN: one vector per word, by a convolution over its characters or subwords and a hashed embedding.

A piece is a character or a subword. The vector has two parts. A convolution over windows of three pieces with
max-pooling (Collobert et al. 2011; Ma and Hovy 2016) encodes the spelling, also of unknown words. A hashed embedding
(Svenstrup et al. 2017), the sum of two table rows chosen by a hash, encodes the whole word without a word vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.dropout import Dropout
from regard.layers.init import glorot

FACTOR = 0x2545F4914F6CDD1D
MIXERS = (0x1D8E4E27C47D124F, 0x369DEA0F31A53F85)
"""Odd numbers with random bits, for hashing; their products wrap around at 64 bits."""
SPREAD = 0.3
"""Range of the initial word embeddings."""


class CharacterWordEncoder(nn.Module):
    """Encodes the pieces of each word as one vector per word."""

    def __init__(self, vocabulary: int, *, piece: int, spelling: int, words: int, embedding: int, word_dropout: float):
        super().__init__()
        self.width = spelling + embedding
        self.char_embedding = nn.Embedding(vocabulary, piece)
        self.convolution = glorot(nn.Linear(3 * piece, spelling))
        self.word_embedding = nn.Embedding(words, embedding)
        nn.init.uniform_(self.word_embedding.weight, -SPREAD, SPREAD)
        self.hide = Dropout(word_dropout)

    def forward(self, ids_BTS: Tensor, mask_BTS: Tensor) -> Tensor:
        """Word vectors [B, T, D], zero on padding. A word that occurs several times is computed only once."""
        mask_BT = mask_BTS[:, :, 0]
        ids_NS, mask_NS = ids_BTS[mask_BT], mask_BTS[mask_BT]
        key_U, number_N = torch.unique(fingerprint(ids_NS, mask_NS), return_inverse=True)
        some_U = key_U.new_zeros(len(key_U)).scatter_(0, number_N, torch.arange(len(number_N), device=key_U.device))
        spelt_UD = self.spell(ids_NS[some_U], mask_NS[some_U])
        places_U, others_U = (mix(key_U, mixer) % self.word_embedding.num_embeddings for mixer in MIXERS)
        whole_UD = self.word_embedding(places_U) + self.word_embedding(others_U)
        both_UD = torch.cat([spelt_UD, whole_UD], dim=-1)
        both_BTD = both_UD.new_zeros(*mask_BT.shape, self.width)
        both_BTD[mask_BT] = both_UD[number_N]
        if not self.training:
            return both_BTD
        spelt_BTD, whole_BTD = both_BTD.split([spelt_UD.shape[1], whole_UD.shape[1]], dim=-1)
        return torch.cat([spelt_BTD, whole_BTD * self.hide(whole_BTD.new_ones(*mask_BT.shape, 1))], dim=-1)

    def spell(self, ids_US: Tensor, mask_US: Tensor) -> Tensor:
        """Encode the spelling of U distinct words by the convolution: [U, D]."""
        mask_US = mask_US.to(self.char_embedding.weight.device)
        x_USE = self.char_embedding(ids_US) * mask_US[:, :, None]
        near_USE = torch.cat([F.pad(x_USE[:, :-1], (0, 0, 1, 0)), x_USE, F.pad(x_USE[:, 1:], (0, 0, 0, 1))], dim=-1)
        answers_USD = F.relu(self.convolution(near_USE))
        return (answers_USD * mask_US[:, :, None]).amax(1)


def fingerprint(ids_NS: Tensor, mask_NS: Tensor) -> Tensor:
    """Hash [N] of the sequence of pieces of each word: a polynomial modulo 2^64."""
    powers = [pow(FACTOR, place, 1 << 64) for place in range(ids_NS.shape[1])]
    signed = torch.tensor([power - (1 << 64) if power >= 1 << 63 else power for power in powers])  # the same 64 bits
    return ((ids_NS + 1) * signed.to(ids_NS.device) * mask_NS).sum(1)


def mix(key_U: Tensor, mixer: int) -> Tensor:
    """Mix a hash, so that its low bits depend on all of its bits."""
    mixed_U = (key_U ^ (key_U >> 29)) * mixer
    return mixed_U ^ (mixed_U >> 32)
