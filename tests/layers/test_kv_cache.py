"""The cache against the plain thing: tensors that are concatenated and indexed."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.layers.kv_cache import KVCache
from tests.toys import close

HEADS, HEAD_WIDTH = 2, 3


def plain_add(kept, both_BW2HK):
    """[B, W, H, T, K] each, one longer."""
    return [torch.cat([part, both_BW2HK[:, :, which, :, None]], dim=-2) for which, part in enumerate(kept)]


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=30), st.integers(0, 1000))
def test_a_cache_is_what_each_hypothesis_has_seen(moves, seed):
    """Any number of steps, each with beams reordered, widened or narrowed, and sometimes a sentence leaving."""
    chance = torch.Generator().manual_seed(seed)
    kept = [torch.zeros(4, 1, HEADS, 0, HEAD_WIDTH)] * 2
    cache = KVCache(*kept)
    for width, leaves in moves:
        rows, before = kept[0].shape[:2]
        both = torch.randn(rows, before, 2, HEADS, HEAD_WIDTH, generator=chance)
        kept, cache = plain_add(kept, both), cache.add(both)
        if leaves and rows > 1:
            rest = torch.randperm(rows, generator=chance)[: rows - 1]
            kept, cache = [part[rest] for part in kept], cache.keep(rest)
        beams = torch.randint(before, (len(kept[0]), width), generator=chance)
        kept = [torch.stack([row[beam] for row, beam in zip(part, beams, strict=True)]) for part in kept]
        cache = cache.follow(beams)
        assert cache.length == kept[0].shape[3]
        for ours, expected in zip(cache, kept, strict=True):
            assert torch.equal(ours, expected)


def test_slots_hold_what_is_seen_and_mask_the_rest():
    cache = KVCache(*torch.randn(2, 3, 2, HEADS, 4, HEAD_WIDTH))
    cache = cache.follow(torch.tensor([[1, 1], [0, 1], [0, 0]]))
    key_BHRK, value_BHRK, owns_B1WR = cache.slots()
    query = torch.randn(3, HEADS, 2, HEAD_WIDTH)
    together = torch.nn.functional.scaled_dot_product_attention(query, key_BHRK, value_BHRK, attn_mask=owns_B1WR)
    for beam in range(2):
        key, value = (part[:, beam] for part in cache)
        alone = torch.nn.functional.scaled_dot_product_attention(query[:, :, beam : beam + 1], key, value)
        close(together[:, :, beam : beam + 1], alone, 1e-6)


def test_shared_pasts_are_held_once():
    """Five hypotheses that stem from one each time need a slot a token and a few more, not five a token."""
    cache = KVCache(*[torch.zeros(1, 1, HEADS, 0, HEAD_WIDTH)] * 2).follow(torch.zeros(1, 5, dtype=torch.long))
    for _ in range(100):
        cache = cache.add(torch.randn(1, 5, 2, HEADS, HEAD_WIDTH)).follow(torch.zeros(1, 5, dtype=torch.long))
    assert cache.length == 100
    assert cache.used < 100 + 5 * 5


def test_one_hypothesis_needs_no_mask():
    cache = KVCache(*[torch.zeros(2, 1, HEADS, 0, HEAD_WIDTH)] * 2)
    for _ in range(3):
        cache = cache.add(torch.randn(2, 1, 2, HEADS, HEAD_WIDTH))
    assert cache.slots()[2] is None
