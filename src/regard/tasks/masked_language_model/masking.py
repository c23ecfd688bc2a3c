"""Which tokens of a text a masked language model must predict, and what it reads in their place.

UNK takes the place of a hidden token (BERT's [MASK]). So any vocabulary can be used, and an encoder knows from this
training the word dropout of classifiers and text encoders, which also replaces tokens by UNK.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batches import Index, TensorBatch, TokenSource
from regard.tasks.masked_language_model.settings import MaskedLanguageModelSettings
from regard.text.tokenizer import EOS, FIRST_TOKEN, SPACE_MARK, UNK, Tokenizer

MASK = UNK


@dataclass(frozen=True)
class MaskedBatch(TensorBatch):
    """Windows of texts with hidden tokens."""

    source: TokenSource
    """What the model reads: some tokens are replaced."""
    chosen_BS: Tensor
    """True at the tokens that the model must predict."""
    target_BS: Tensor
    """The original tokens."""
    index_B: Tensor
    """Indices of the windows in the store."""

    @property
    def target_tokens(self) -> int:
        return int(self.chosen_BS.sum())

    @property
    def target_N(self) -> Tensor:
        """The tokens that the model must predict, row by row."""
        return self.target_BS[self.chosen_BS]


class Masking:
    """Chooses and replaces tokens. All random numbers come from the generator that the caller gives."""

    def __init__(self, settings: MaskedLanguageModelSettings, tokenizer: Tokenizer):
        self.settings, self.pad = settings, tokenizer.pad
        # Whether a token starts a word. Bytes do not: several of them are one character.
        self.starts_V = np.array([tokenizer.token(id).startswith(SPACE_MARK) for id in range(tokenizer.size)])

    def apply(self, source: TokenSource, index: Index, chance: np.random.Generator) -> MaskedBatch:
        """Hide tokens of a padded batch of windows; `index`: the indices of the windows in the store.

        Of a row with n tokens, n times `hidden_share` tokens are chosen, at least one, and never EOS or UNK.
        """
        ids_BS, settings = source.ids_BS.numpy(), self.settings
        real_BS = source.mask_BS.numpy() & (ids_BS != EOS) & (ids_BS != UNK)
        chosen_BS = choose(self._keys(ids_BS, chance), real_BS, settings.hidden_share)
        draw_BS = chance.random(ids_BS.shape, np.float32)
        random_BS = chance.integers(FIRST_TOKEN, max(self.pad, FIRST_TOKEN + 1), ids_BS.shape)
        is_random = draw_BS < settings.random_share
        is_kept = ~is_random & (draw_BS < settings.random_share + settings.kept_share)
        seen_BS = np.where(is_random, random_BS, np.where(is_kept, ids_BS, MASK))
        read_BS = torch.from_numpy(np.where(chosen_BS, seen_BS, ids_BS))
        read = TokenSource(read_BS, source.mask_BS)
        return MaskedBatch(read, torch.from_numpy(chosen_BS), source.ids_BS, torch.tensor(index, dtype=torch.int64))

    def _keys(self, ids_BS: NDArray[np.int64], chance: np.random.Generator) -> NDArray[np.float32]:
        """A random number per token or, with `whole_words`, per word. The tokens with the smallest ones are chosen."""
        keys_BS = chance.random(ids_BS.shape, np.float32)
        if not self.settings.whole_words:
            return keys_BS
        word_BS = np.cumsum(self.starts_V[ids_BS], axis=1)  # a window may begin inside a word: word 0
        return np.take_along_axis(keys_BS, np.minimum(word_BS, ids_BS.shape[1] - 1), axis=1)


def choose(keys_BS: NDArray[np.float32], real_BS: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Per row, the `share` of the real tokens with the smallest keys, at least one; tokens with equal keys together."""
    keys_BS = np.where(real_BS, keys_BS, np.float32(np.inf))
    count_B = np.maximum(np.rint(share * real_BS.sum(1)).astype(np.int64), 1)
    limit_B = np.take_along_axis(np.sort(keys_BS, axis=1), count_B[:, None] - 1, axis=1)
    return (keys_BS <= limit_B) & real_BS


def every_nth(ids: Sequence[int], first: int, every: int) -> list[int]:
    """The positions of the tokens number `first`, `first` + `every`, ... of a window; UNK is not counted."""
    return [place for place, id in enumerate(ids) if id != UNK][first::every]
