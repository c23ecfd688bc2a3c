"""What self-attention has seen so far in a decoding: keys and values of a sentence's hypotheses, side by side.

Hypotheses share most of their past. So the keys and values of a sentence are kept once, in slots, and a boolean says
which slots belong to which hypothesis. When beams are reordered, only that boolean is; slots that no hypothesis owns
any more are cleared away now and then.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

ROOM = 64
"""Slots that a new cache has room for; a full one doubles."""
TIDY_AFTER = 4
"""Tokens between two looks for slots that nobody owns."""


class KVCache:
    """Keys and values of one layer.

    It is a branch of a state like a pair of tensors [B, W, H, T, K]: it unpacks into them and is built from them.
    Memory is handed on from step to step, so a cache goes on in one way only.
    """

    _fields = ("key", "value")

    def __init__(self, key: Tensor, value: Tensor):
        """From keys and values [B, W, H, T, K]."""
        rows, width, heads, self.length, head_width = key.shape
        self.used = self.length * width
        self._room = key.new_empty(2, rows, heads, self.used + ROOM, head_width)
        for part, given in zip(self._room, (key, value), strict=True):
            part[:, :, : self.used] = given.permute(0, 2, 3, 1, 4).flatten(2, 3)  # slot t W + w
        self._owns_BWR = torch.eye(width, dtype=torch.bool, device=key.device).repeat(1, self.length)
        self._owns_BWR = self._owns_BWR.expand(rows, -1, -1)
        self._tidy_at = self.used + ROOM // 2

    def __iter__(self) -> Iterator[Tensor]:
        yield self.key
        yield self.value

    @property
    def key(self) -> Tensor:
        """Keys that each hypothesis has seen, [B, W, H, T, K]."""
        return self._gathered(0)

    @property
    def value(self) -> Tensor:
        """Values that each hypothesis has seen, [B, W, H, T, K]."""
        return self._gathered(1)

    def slots(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values of all slots, [B, H, R, K], and who owns them, [B, 1, W, R]; None when all own all."""
        key, value = self._room[:, :, :, : self.used]
        return key, value, None if self.used == self.length else self._owns_BWR.unsqueeze(1)

    def add(self, both_BW2HK: Tensor) -> KVCache:
        """With the keys and values of one more token of each hypothesis."""
        rows, width = both_BW2HK.shape[:2]
        end, room = self.used + width, self._room
        if end > room.shape[3]:
            room = room.new_empty(*room.shape[:3], max(2 * room.shape[3], end + ROOM), room.shape[4])
            room[:, :, :, : self.used] = self._room[:, :, :, : self.used]
        room[:, :, :, self.used : end] = both_BW2HK.permute(2, 0, 3, 1, 4)
        own_BWW = torch.eye(width, dtype=torch.bool, device=room.device).expand(rows, -1, -1)
        return self._with(room, torch.cat([self._owns_BWR, own_BWW], dim=-1), self.length + 1, self._tidy_at)

    def follow(self, beams_BW: Tensor) -> KVCache:
        """Each new hypothesis continues the old one it came from."""
        owns_BWR = self._owns_BWR.gather(1, beams_BW[:, :, None].expand(-1, -1, self.used))
        after = self._with(self._room, owns_BWR, self.length, self._tidy_at)
        return after._tidied() if self.used >= self._tidy_at else after

    def keep(self, rows_N: Tensor) -> KVCache:
        """Only these sentences."""
        room, owns_BWR = self._room.index_select(1, rows_N), self._owns_BWR.index_select(0, rows_N)
        return self._with(room, owns_BWR, self.length, self._tidy_at)

    def _tidied(self) -> KVCache:
        """Slots that somebody owns first, then as many others as new tokens will overwrite until the next time."""
        width, soon = self._owns_BWR.shape[1], TIDY_AFTER * self._owns_BWR.shape[1]
        owned_BR = F.pad(self._owns_BWR.any(1), (0, self._room.shape[3] - self.used))
        count = int(owned_BR.sum(1).max())  # a sentence that owns fewer keeps some that nobody owns
        slot_BR = _true_first(owned_BR)[:, : count + soon + width]
        owns_BWR = self._owns_BWR.gather(2, slot_BR[:, None, :count].expand(-1, width, -1))
        return self._with(_take_slots(self._room, slot_BR), owns_BWR, self.length, count + soon)

    def _gathered(self, which: int) -> Tensor:
        rows, width, _ = self._owns_BWR.shape
        slot_BWT = _true_first(self._owns_BWR)[:, :, : self.length]  # each owns one slot a token, in their order
        slot_BN = slot_BWT.reshape(rows, width * self.length)
        return _take_slots(self._room[which : which + 1], slot_BN)[0].unflatten(2, (width, -1)).transpose(1, 2)

    def _with(self, room: Tensor, owns_BWR: Tensor, length: int, tidy_at: int) -> KVCache:
        other = object.__new__(KVCache)
        other._room, other._owns_BWR, other.length, other._tidy_at = room, owns_BWR, length, tidy_at
        other.used = owns_BWR.shape[2]
        return other


def _true_first(flags: Tensor) -> Tensor:
    """Places along the last axis, those of the true ones first; otherwise in their order."""
    return flags.byte().argsort(dim=-1, descending=True, stable=True)


def _take_slots(room: Tensor, slot_BN: Tensor) -> Tensor:
    """These slots [P, B, H, N, K] of each sentence of a room [P, B, H, R, K]."""
    parts, rows, heads, size, head_width = room.shape
    first = torch.arange(parts * rows * heads, device=room.device).view(parts, rows, heads, 1) * size
    index = (first + slot_BN[:, None]).flatten()
    return room.reshape(-1, head_width).index_select(0, index).view(parts, rows, heads, -1, head_width)
