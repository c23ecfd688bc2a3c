"""Random sentence pairs, for what is measured over many of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tests.toys import Sentences, sentences, tokens


class Pairs(NamedTuple):
    """A batch."""

    source: Sentences
    target_input_BT: Tensor
    target_output_BT: Tensor
    target_mask_BT: Tensor


def pairs(*lengths: int) -> Pairs:
    """Sources and targets of these lengths, at most five."""
    size = len(lengths)
    return Pairs(sentences(lengths), tokens(size, 5), tokens(size, 5), torch.arange(5) < torch.tensor(lengths)[:, None])
