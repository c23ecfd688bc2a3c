"""The KV cache of self-attention in a beam search: keys and values of all hypotheses of a sentence.

Hypotheses share most of their tokens. So each key and value of a sentence is stored once, in a slot, and a boolean mask
says which hypothesis uses which slots. Reordering beams changes only the mask. Slots that no hypothesis uses any more
are removed from time to time.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

ROOM = 64  # free slots of a new cache; a full cache doubles its size
COMPACT_AFTER = 4  # decoding steps between two removals of unused slots


class KVCache:
    """Keys and values of one self-attention layer, for all hypotheses of a batch; shared tokens are stored once.

    A cache behaves like a named tuple of two tensors [B, W, H, T, K], the keys and the values of all hypotheses. The
    cache that `add` returns uses the same memory, so the caller must call `add` at most once on each cache.
    """

    _fields = ("key", "value")

    def __init__(self, key: Tensor, value: Tensor):
        rows, width, heads, self.length, head_width = key.shape
        self.used = self.length * width
        self._room = key.new_empty(2, rows, heads, self.used + ROOM, head_width)
        for part, given in zip(self._room, (key, value), strict=True):
            part[:, :, : self.used] = given.permute(0, 2, 3, 1, 4).flatten(2, 3)  # slot t W + w
        self._owns_BWR = torch.eye(width, dtype=torch.bool, device=key.device).repeat(1, self.length)
        self._owns_BWR = self._owns_BWR.expand(rows, -1, -1)
        self._compact_at = self.used + ROOM // 2

    def __iter__(self) -> Iterator[Tensor]:
        rows, width, _ = self._owns_BWR.shape
        slot_BWT = _true_first(self._owns_BWR)[:, :, : self.length]  # each hypothesis uses one slot per token, in order
        for part in _take_slots(self._room, slot_BWT.reshape(rows, width * self.length)):
            yield part.unflatten(2, (width, -1)).transpose(1, 2)

    def slots(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values [B, H, R, K] of all R slots in use, and a mask [B, 1, W, R] of the slots of each hypothesis.

        A slot holds the key and value of one token. The mask is True if hypothesis w uses slot r; it is None if every
        hypothesis uses all slots.
        """
        key, value = self._room[:, :, :, : self.used]
        return key, value, None if self.used == self.length else self._owns_BWR.unsqueeze(1)

    def add(self, both_BW2HK: Tensor) -> KVCache:
        """Return a cache with one more token per hypothesis; `both_BW2HK` has its key and its value (axis 2)."""
        rows, width = both_BW2HK.shape[:2]
        end, room = self.used + width, self._room
        if end > room.shape[3]:
            room = room.new_empty(*room.shape[:3], max(2 * room.shape[3], end + ROOM), room.shape[4])
            room[:, :, :, : self.used] = self._room[:, :, :, : self.used]
        room[:, :, :, self.used : end] = both_BW2HK.permute(2, 0, 3, 1, 4)
        own_BWW = torch.eye(width, dtype=torch.bool, device=room.device).expand(rows, -1, -1)
        return self._with(room, torch.cat([self._owns_BWR, own_BWW], dim=-1), self.length + 1, self._compact_at)

    def follow(self, beams_BW: Tensor) -> KVCache:
        """Reorder beams: hypothesis w of the returned cache is hypothesis `beams_BW[b, w]` of this cache."""
        owns_BWR = self._owns_BWR.gather(1, beams_BW[:, :, None].expand(-1, -1, self.used))
        after = self._with(self._room, owns_BWR, self.length, self._compact_at)
        return after._compacted() if self.used >= self._compact_at else after

    def keep(self, rows_N: Tensor) -> KVCache:
        """Return a cache with only the sentences of the batch whose indices are in `rows_N`."""
        room, owns_BWR = self._room.index_select(1, rows_N), self._owns_BWR.index_select(0, rows_N)
        return self._with(room, owns_BWR, self.length, self._compact_at)

    def _compacted(self) -> KVCache:
        """Return a cache without unused slots, and with free slots for the next COMPACT_AFTER decoding steps."""
        width, soon = self._owns_BWR.shape[1], COMPACT_AFTER * self._owns_BWR.shape[1]
        owned_BR = F.pad(self._owns_BWR.any(1), (0, self._room.shape[3] - self.used))
        count = int(owned_BR.sum(1).max())  # sentences that use fewer slots keep some unused ones
        slot_BR = _true_first(owned_BR)[:, : count + soon + width]
        owns_BWR = self._owns_BWR.gather(2, slot_BR[:, None, :count].expand(-1, width, -1))
        return self._with(_take_slots(self._room, slot_BR), owns_BWR, self.length, count + soon)

    def _with(self, room: Tensor, owns_BWR: Tensor, length: int, compact_at: int) -> KVCache:
        other = object.__new__(KVCache)
        other._room, other._owns_BWR, other.length, other._compact_at = room, owns_BWR, length, compact_at
        other.used = owns_BWR.shape[2]
        return other


def _true_first(flags: Tensor) -> Tensor:
    """Sort indices along the last axis: first the indices of True, then of False, both in ascending order."""
    return flags.byte().argsort(dim=-1, descending=True, stable=True)


def _take_slots(room: Tensor, slot_BN: Tensor) -> Tensor:
    """Select the cache slots with the indices `slot_BN`, N for each sentence.

    `room` is the memory of a cache, [2 (key, value), B, H, R, K] for R slots; the result is [2, B, H, N, K].
    """
    parts, rows, heads, size, head_width = room.shape
    first = torch.arange(parts * rows * heads, device=room.device).view(parts, rows, heads, 1) * size
    index = (first + slot_BN[:, None]).flatten()
    return room.reshape(-1, head_width).index_select(0, index).view(parts, rows, heads, -1, head_width)
