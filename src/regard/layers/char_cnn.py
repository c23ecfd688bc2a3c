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
"""The values of `mixer` for the two table rows of a word: odd numbers with random bits."""


class CharacterWordEncoder(nn.Module):
    """Computes one vector per word from the ids of its pieces (characters or subwords).

    `vocabulary`: number of different pieces. `piece`, `spelling` and `embedding`: widths of piece embeddings, of the
    convolution and of whole-word embeddings. `words`: number of rows of the table of whole-word embeddings; a word
    selects rows by a hash. `word_dropout`: share of the words whose whole-word embedding is set to zero in training.
    """

    def __init__(self, vocabulary: int, *, piece: int, spelling: int, words: int, embedding: int, word_dropout: float):
        super().__init__()
        self.width = spelling + embedding
        self.char_embedding = nn.Embedding(vocabulary, piece)
        self.convolution = glorot(nn.Linear(3 * piece, spelling))
        self.word_embedding = nn.Embedding(words, embedding)
        nn.init.uniform_(self.word_embedding.weight, -0.3, 0.3)
        self.hide = Dropout(word_dropout)

    def forward(self, ids_BTS: Tensor, mask_BTS: Tensor) -> Tensor:
        """Word vectors [B, T, D] of T words with S characters or subwords each; zero on padding.

        The vector of a word that occurs several times is computed once.
        """
        mask_BT = mask_BTS[:, :, 0]
        ids_NS, mask_NS = ids_BTS[mask_BT], mask_BTS[mask_BT]
        key_U, index_N = torch.unique(fingerprint(ids_NS, mask_NS), return_inverse=True)
        some_U = key_U.new_zeros(len(key_U)).scatter_(0, index_N, torch.arange(len(index_N), device=key_U.device))
        spelled_UD = self.spell(ids_NS[some_U], mask_NS[some_U])
        places_U, others_U = (mix(key_U, mixer) % self.word_embedding.num_embeddings for mixer in MIXERS)
        whole_UD = self.word_embedding(places_U) + self.word_embedding(others_U)
        both_UD = torch.cat([spelled_UD, whole_UD], dim=-1)
        both_BTD = both_UD.new_zeros(*mask_BT.shape, self.width)
        both_BTD[mask_BT] = both_UD[index_N]
        if not self.training:
            return both_BTD
        spelled_BTD, whole_BTD = both_BTD.split([spelled_UD.shape[1], whole_UD.shape[1]], dim=-1)
        return torch.cat([spelled_BTD, whole_BTD * self.hide(whole_BTD.new_ones(*mask_BT.shape, 1))], dim=-1)

    def spell(self, ids_NS: Tensor, mask_NS: Tensor) -> Tensor:
        """Encode the spelling of N distinct words, S characters or subwords each, by the convolution: [N, D]."""
        mask_NS = mask_NS.to(self.char_embedding.weight.device)
        x_NSE = self.char_embedding(ids_NS) * mask_NS[:, :, None]
        near_NSE = torch.cat([F.pad(x_NSE[:, :-1], (0, 0, 1, 0)), x_NSE, F.pad(x_NSE[:, 1:], (0, 0, 0, 1))], dim=-1)
        answers_NSD = F.relu(self.convolution(near_NSE))
        return (answers_NSD * mask_NS[:, :, None]).amax(1)


def fingerprint(ids_NS: Tensor, mask_NS: Tensor) -> Tensor:
    """A 64-bit hash [N] of each of N words: a polynomial of the ids of its characters or subwords modulo 2^64."""
    powers = [pow(FACTOR, place, 1 << 64) for place in range(ids_NS.shape[1])]
    signed = torch.tensor([power - (1 << 64) if power >= 1 << 63 else power for power in powers])  # the same 64 bits
    return ((ids_NS + 1) * signed.to(ids_NS.device) * mask_NS).sum(1)


def mix(key_N: Tensor, mixer: int) -> Tensor:
    """Hash the hashes `key_N` again with the odd number `mixer`, so that the low bits depend on all bits of the key."""
    mixed_N = (key_N ^ (key_N >> 29)) * mixer
    return mixed_N ^ (mixed_N >> 32)
