"""The one function and what stands around it: scores, masks, heads, neighbourhoods."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.layers.attention import (
    AdditiveScore,
    BilinearScore,
    CrossAttention,
    DotProductScore,
    ScaledDotProductScore,
    SelfAttention,
    attend,
    attend_nearby,
    causal_mask,
    masked_softmax,
)
from regard.layers.hooks import AttentionHook, listen, trace, without_heads
from regard.layers.positional_encoding import RotaryEncoding
from tests.toys import close


def heard() -> AttentionHook:
    """A tap that is listened to: attention goes the open way."""
    tap = AttentionHook("here")
    tap.idle = False
    return tap


def random_heads(*shape: int, count: int = 3, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for _ in range(count)]


both_ways = pytest.mark.parametrize("make_tap", [lambda: None, heard], ids=["fused", "open"])


# ---------------------------------------------------------------------------------------------------------------------
# Scores


def test_dot_is_the_sum_of_products() -> None:
    query, key = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.5, -1.0]])
    close(DotProductScore()(query, key), torch.tensor([[11.0, -1.5]]))


def test_scaled_dot_divides_by_the_root_of_the_width() -> None:
    query, key = torch.tensor([[1.0, 2.0, 0.0, 1.0]]), torch.tensor([[3.0, 4.0, 9.0, 5.0]])
    close(ScaledDotProductScore()(query, key), torch.tensor([[8.0]]))


def test_bilinear_is_query_matrix_key() -> None:
    score, query, key = BilinearScore(3, 2), torch.randn(4, 3), torch.randn(5, 2)
    expected = torch.stack([torch.stack([k @ score.map.weight @ q for k in key]) for q in query])
    close(score(query, key), expected)


def test_perceptron_is_one_hidden_layer() -> None:
    score, query, key = AdditiveScore(3, 2, 6), torch.randn(4, 3), torch.randn(5, 2)
    W, U, bias, v = score.query.weight, score.key.weight, score.key.bias, score.score.weight[0]
    expected = torch.stack([torch.stack([v @ torch.tanh(W @ q + U @ k + bias) for k in key]) for q in query])
    close(score(query, score.prepare(key)), expected)


@both_ways
@pytest.mark.parametrize(
    "score", [DotProductScore(), ScaledDotProductScore(), BilinearScore(4, 4)], ids=lambda score: type(score).__name__
)
def test_attend_is_softmax_of_scores_times_values(score: nn.Module, make_tap) -> None:
    query, key, value = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    close(attend(query, key, value, score=score, tap=make_tap()), score(query, key).softmax(-1) @ value)


def test_under_autocast_a_cpu_attends_in_float32() -> None:
    """PyTorch's kernel is slow backwards in bfloat16 there."""
    query, key, value = random_heads(2, 3, 5, 4)
    expected = attend(query, key, value)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(query, key, value)
        mixed = attend(query.bfloat16(), key.bfloat16(), value)
    assert torch.equal(found, expected)
    assert mixed.dtype == torch.float32


def test_attend_takes_a_score_that_is_no_dot_product() -> None:
    score, query, key, value = AdditiveScore(3, 2, 6), torch.randn(1, 4, 3), torch.randn(1, 5, 2), torch.randn(1, 5, 7)
    prepared = score.prepare(key)
    close(attend(query, prepared, value, score=score), score(query, prepared).softmax(-1) @ value)


@both_ways
@pytest.mark.parametrize(
    "score", [DotProductScore(), ScaledDotProductScore(), BilinearScore(3, 3)], ids=lambda score: type(score).__name__
)
def test_gradient_of_dot_product_scores(score: nn.Module, make_tap) -> None:
    score = score.double()
    mask = torch.tensor([[True, True, True, False], [True, False, True, True]])
    inputs = random_heads(1, 2, 3, dtype=torch.float64, count=1) + random_heads(1, 4, 3, dtype=torch.float64, count=2)
    weights = [weight.requires_grad_() for weight in score.parameters()]

    def run(query: Tensor, key: Tensor, value: Tensor, *_: Tensor) -> Tensor:
        return attend(query, key, value, mask, score=score, tap=make_tap())

    assert torch.autograd.gradcheck(run, (*inputs, *weights))


def test_gradient_of_the_perceptron_score() -> None:
    score = AdditiveScore(3, 2, 4).double()
    mask = torch.tensor([[True, True, True, False], [True, False, True, True]])
    query, key, value = (
        torch.randn(1, n, w, dtype=torch.float64, requires_grad=True) for n, w in [(2, 3), (4, 2), (4, 3)]
    )

    def run(query: Tensor, key: Tensor, value: Tensor, *_: Tensor) -> Tensor:
        return attend(query, score.prepare(key), value, mask, score=score)

    assert torch.autograd.gradcheck(run, (query, key, value, *score.parameters()))


# ---------------------------------------------------------------------------------------------------------------------
# Masks


@both_ways
@pytest.mark.parametrize("queries", [1, 3, 40])
def test_a_query_that_may_see_nothing_gets_zeros(queries: int, make_tap) -> None:
    (query,) = random_heads(2, 2, queries, 4, count=1)
    key, value = random_heads(2, 2, 5, 4, count=2)
    mask = torch.tensor([[True, True, False, True, False], [False] * 5])[:, None, None, :]
    mixed = attend(query, key, value, mask, tap=make_tap())
    assert not mixed[1].any()
    assert mixed[0].abs().min() > 0
    mixed.square().sum().backward()
    for tensor in (query, key, value):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()
        assert not tensor.grad[1].any()


def test_a_query_that_may_see_nothing_has_no_weights() -> None:
    scores = torch.randn(2, 3, requires_grad=True)
    weights = masked_softmax(scores, torch.tensor([[False, False, False], [False, True, True]]))
    assert weights[0].tolist() == [0, 0, 0]
    assert weights[1, 0] == 0
    weights[:, 2].sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@both_ways
def test_masked_keys_and_values_do_not_matter(make_tap) -> None:
    query, key, value = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
    mask = torch.tensor([True, False, True, True, False])
    expected = attend(query, key[..., mask, :], value[..., mask, :])
    key[..., ~mask, :], value[..., ~mask, :] = 1e4, -1e4
    close(attend(query, key, value, mask[None], tap=make_tap()), expected)


@both_ways
def test_causal_is_the_triangular_mask(make_tap) -> None:
    query, key, value = (torch.randn(2, 2, 6, 4) for _ in range(3))
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    close(attend(query, key, value, causal=True, tap=make_tap()), attend(query, key, value, mask))


def test_causal_gives_the_future_exactly_zero_weight() -> None:
    layer = SelfAttention(8, 2, 4, "here", causal=True)
    with trace(layer) as tape:
        layer(torch.randn(3, 7, 8))
    weights_BHTS = tape["here"].weights_BHTS
    assert torch.count_nonzero(weights_BHTS.masked_select(~causal_mask(7, 7, torch.device("cpu")))) == 0
    assert weights_BHTS.masked_select(causal_mask(7, 7, torch.device("cpu"))).min() > 0


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 20), st.integers(1, 20), st.integers(1, 9)),
    seed=st.integers(0, 1000),
)
def test_the_fused_way_equals_the_open_way(shape: tuple[int, ...], seed: int) -> None:
    batch, heads, queries, keys, width = shape
    torch.manual_seed(seed)
    query = torch.randn(batch, heads, queries, width)
    key, value = torch.randn(batch, heads, keys, width), torch.randn(batch, heads, keys, width)
    mask = torch.rand(batch, 1, queries, keys) < 0.6
    close(attend(query, key, value, mask), attend(query, key, value, mask, tap=heard()))


# ---------------------------------------------------------------------------------------------------------------------
# Neighbourhoods


def by_band_mask(query: Tensor, key: Tensor, value: Tensor, mask_BN: Tensor | None, window: int) -> Tensor:
    """What restricted attention is defined to be, at the price of an n by n matrix."""
    place = torch.arange(query.shape[-2])
    band = (place[:, None] - place[None, :]).abs() <= window // 2
    if mask_BN is not None:
        band = band & mask_BN[:, None, None, :]
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~band, -math.inf).softmax(-1).nan_to_num(0.0)
    return weights @ value


@settings(max_examples=150)
@given(
    batch=st.integers(1, 3),
    length=st.integers(1, 150),
    window=st.one_of(st.integers(1, 12), st.integers(13, 400)),
    padded=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_nearby_equals_a_band_mask(batch: int, length: int, window: int, padded: bool, seed: int) -> None:
    torch.manual_seed(seed)
    query, key, value = (torch.randn(batch, 2, length, 4) for _ in range(3))
    mask_BN = torch.arange(length) < torch.randint(length + 1, (batch, 1)) if padded else None
    expected = by_band_mask(query, key, value, mask_BN, window)
    close(attend_nearby(query, key, value, mask_BN, window), expected)
    close(attend_nearby(query, key, value, mask_BN, window, tap=heard()), expected)


@pytest.mark.parametrize(("length", "window"), [(48, 32), (49, 32), (64, 32), (65, 33), (97, 64), (100, 64), (192, 64)])
def test_nearby_at_the_edges_of_a_block(length: int, window: int) -> None:
    """Lengths just below, at and above whole blocks, where cutting begins (three blocks) and further on."""
    query, key, value = (torch.randn(2, 2, length, 4) for _ in range(3))
    mask_BN = torch.arange(length) < torch.tensor([[length], [length - 40]])
    expected = by_band_mask(query, key, value, mask_BN, window)
    close(attend_nearby(query, key, value, mask_BN, window), expected)


def test_a_wide_window_sees_everything() -> None:
    query, key, value = (torch.randn(2, 2, 60, 4) for _ in range(3))
    close(attend_nearby(query, key, value, None, 120), attend(query, key, value))


def test_a_window_of_one_sees_itself() -> None:
    query, key, value = (torch.randn(2, 2, 60, 4) for _ in range(3))
    close(attend_nearby(query, key, value, None, 1), value)


def test_gradient_of_nearby() -> None:
    mask_BN = (torch.arange(50) < 44)[None]
    inputs = random_heads(1, 1, 50, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda q, k, v: attend_nearby(q, k, v, mask_BN, 7), inputs)


def test_gradient_of_nearby_equals_that_of_the_band_mask() -> None:
    mask_BN = torch.arange(100) < torch.tensor([[100], [61]])
    inputs = random_heads(2, 2, 100, 4)
    tilt = torch.randn(2, 2, 100, 4)
    near, band = (
        torch.autograd.grad((way(*inputs, mask_BN, 21) * tilt)[mask_BN[:, None].expand(-1, 2, -1)].sum(), inputs)
        for way in (attend_nearby, by_band_mask)
    )
    for ours, expected in zip(near, band, strict=True):
        close(ours, expected)


def test_nearby_never_holds_a_square_matrix() -> None:
    """At n = 2,048 the largest tensor that any operation makes stays far below n times n."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            answer = function(*args, **(kwargs or {}))
            for tensor in answer if isinstance(answer, tuple) else (answer,):
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.untyped_storage().nbytes() // tensor.element_size())
            return answer

    inputs = random_heads(1, 1, 2048, 8)
    with Watch():
        attend_nearby(*inputs, None, 64).sum().backward()
    assert largest <= 2048 * 3 * 64


# ---------------------------------------------------------------------------------------------------------------------
# Many heads


def test_steps_of_self_attention_equal_the_causal_layer() -> None:
    layer, x_BTD = SelfAttention(8, 2, 6, "here", causal=True, rotary=RotaryEncoding(6)), torch.randn(3, 5, 8)
    cache, outputs = layer.start(3, 1), []
    for x_BD in x_BTD.unbind(1):
        output, cache = layer.step(x_BD[:, None], cache)
        outputs.append(output)
    close(torch.cat(outputs, dim=1), layer(x_BTD))


def test_the_cache_grows_by_one_token_a_step() -> None:
    layer = SelfAttention(8, 2, 6, "here", causal=True)
    _, cache = layer.step(torch.randn(3, 4, 8), layer.start(3, 4))
    assert [part.shape for part in cache] == [(3, 4, 2, 1, 6)] * 2


def test_cross_attention_holds_one_memory_for_all_queries() -> None:
    layer, memory_BSD, x_BTD = CrossAttention(8, 2, 6, "here"), torch.randn(3, 7, 8), torch.randn(3, 4, 8)
    memory = layer.project(memory_BSD)
    assert memory.key.shape == memory.value.shape == (3, 2, 7, 6)
    together = layer(x_BTD, memory, None)
    for place in range(4):
        close(together[:, place : place + 1], layer(x_BTD[:, place : place + 1], memory, None), 1e-6)


@pytest.mark.parametrize("head", [0, 1, 3])
def test_a_head_switched_off_is_its_columns_zeroed(head: int) -> None:
    """Head h owns columns h K ... (h + 1) K of the output projection."""
    layer, x_BTD = SelfAttention(8, 4, 3, "here"), torch.randn(2, 5, 8)
    with listen(layer, "here", without_heads(head)):
        switched_off = layer(x_BTD)
    with torch.no_grad():
        layer.out.weight[:, 3 * head : 3 * (head + 1)] = 0
    close(switched_off, layer(x_BTD), 1e-6)


def test_heads_are_independent() -> None:
    """Each head, run as a layer of its own with its rows of the projections, gives its part of the whole."""
    layer, x_BTD = SelfAttention(8, 4, 3, "here"), torch.randn(2, 5, 8)
    parts = []
    for head in range(4):
        alone = SelfAttention(8, 1, 3, "alone")
        rows = slice(3 * head, 3 * (head + 1))
        with torch.no_grad():
            alone.qkv.weight.copy_(layer.qkv.weight.view(3, 12, 8)[:, rows].flatten(0, 1))
            alone.out.weight.copy_(layer.out.weight[:, rows])
        parts.append(alone(x_BTD))
    close(torch.stack(parts).sum(0), layer(x_BTD))
