"""Every number that the lectures print, held against our own code (DESIGN.md, "Numbers that the lectures print")."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard import models
from regard.layers.attention import (
    ScaledDotProductScore,
    SelfAttention,
    attend,
    attend_nearby,
    causal_mask,
    masked_softmax,
)
from regard.layers.hooks import AttentionHook, AttentionRecord, trace
from regard.layers.positional_encoding import sinusoids
from regard.models import presets
from regard.models.base import count_parameters
from regard.models.transformer_settings import TransformerSettings
from tests.toys import close

# ---------------------------------------------------------------------------------------------------------------------
# Scores and softmax


@pytest.mark.parametrize(
    ("products", "divided", "shares"),
    [([112.0, 96.0], [14.0, 12.0], [0.88, 0.12]), ([32.0, 64.0], [4.0, 8.0], [0.02, 0.98])],
)
def test_scores_divided_by_eight_and_softmax(products: list[float], divided: list[float], shares: list[float]) -> None:
    """Slide "Self-attention in detail": q.k, divided by sqrt(d_k) = 8, then softmax, for d_k = 64."""
    query, key = torch.zeros(1, 1, 1, 64), torch.zeros(1, 1, 2, 64)
    query[..., 0], key[..., 0] = 1.0, torch.tensor(products)
    scores = ScaledDotProductScore()(query, key)
    assert scores.flatten().tolist() == divided
    assert [round(share, 2) for share in masked_softmax(scores).flatten().tolist()] == shares


def test_the_output_is_the_sum_of_values_by_those_shares() -> None:
    """Slide "Self-attention in detail": z1 = 0.88 v1 + 0.12 v2."""
    query, key, value = torch.zeros(1, 1, 1, 64), torch.zeros(1, 1, 2, 64), torch.eye(2)[None, None]
    query[..., 0], key[..., 0] = 1.0, torch.tensor([112.0, 96.0])
    assert [round(part, 2) for part in attend(query, key, value).flatten().tolist()] == [0.88, 0.12]


# ---------------------------------------------------------------------------------------------------------------------
# Positions


@pytest.mark.parametrize(
    ("width", "dim", "printed"),
    [
        (50, 0, [0.000, 0.841, 0.909, 0.141]),
        (50, 1, [1.000, 0.540, -0.416, -0.990]),
        (50, 2, [0.000, 0.638, 0.983, 0.875]),
        (50, 3, [1.000, 0.770, 0.186, -0.484]),
        (20, 2, [0.000, 0.388, 0.715, 0.930]),
        (20, 3, [1.000, 0.922, 0.699, 0.368]),
    ],
)
def test_printed_positions(width: int, dim: int, printed: list[float]) -> None:
    """Slide "Positional encoding": the table of positions 0 to 3 at d = 50 and d = 20."""
    assert [round(entry, 3) for entry in sinusoids(4, width)[:, dim].tolist()] == printed


@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_shift_is_a_rotation(step: int) -> None:
    """Slide "Relative positions": PE(pos + k) = M_k PE(pos), M_k a rotation that does not depend on pos."""
    table = sinusoids(300, 50)
    pairs_before, pairs_after = (rows.unflatten(1, (25, 2)) for rows in (table[:-step], table[step:]))
    angle = step * 10000.0 ** (-torch.arange(25) * 2 / 50)
    turn = torch.stack([torch.stack([angle.cos(), angle.sin()], 1), torch.stack([-angle.sin(), angle.cos()], 1)], 1)
    close(torch.einsum("pij,tpj->tpi", turn, pairs_before), pairs_after, 2e-5)
    close(turn @ turn.mT, torch.eye(2).expand(25, 2, 2), 1e-6)
    close(torch.linalg.det(turn), torch.ones(25), 1e-6)


def test_products_of_positions_are_symmetric_and_decay() -> None:
    """Slide "Dot product of position vectors": PE(p).PE(q) is symmetric and falls with |p - q|."""
    table = sinusoids(400, 512).double()
    products = table @ table.T
    close(products, products.T)
    by_distance = products[200]
    close(by_distance[160:201].flip(0), by_distance[200:241], 1e-3)  # as far left as right
    assert (by_distance[200:240].diff() < 0).all()
    coarse = [by_distance[200 + 4**power : 200 + 4 ** (power + 1)].mean().item() for power in range(3)]
    assert coarse == sorted(coarse, reverse=True)


def test_without_positions_self_attention_sees_a_set() -> None:
    """Slide "Why positions": permuting the input of self-attention permutes its output and changes nothing else."""
    layer, x_BTD, order = SelfAttention(16, 4, 4, "here"), torch.randn(2, 9, 16), torch.randperm(9)
    with trace(layer) as straight:
        output = layer(x_BTD)
    with trace(layer) as permuted:
        close(layer(x_BTD[:, order]), output[:, order])
    close(permuted["here"].weights_BHTS, straight["here"].weights_BHTS[:, :, order][..., order])


def test_future_positions_get_exactly_zero_weight() -> None:
    """Slide "Masked self-attention in the decoder": masked scores become a weight of exactly zero."""
    seen: list[AttentionRecord] = []
    tap = AttentionHook("here")
    query, key, value = (torch.randn(1, 2, 6, 8) for _ in range(3))
    with tap.attached(recorder=seen.append):
        attend(query, key, value, causal=True, tap=tap)
    future = seen[0].weights_BHTS.masked_select(~causal_mask(6, 6, torch.device("cpu")))
    assert future.tolist() == [0.0] * 30
    close(seen[0].weights_BHTS.sum(-1), torch.ones(1, 2, 6), 1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# Sizes


def parameters(settings: TransformerSettings) -> int:
    with torch.device("meta"):  # shapes alone: big would take a gigabyte
        return count_parameters(models.build(settings, source_vocabulary=37_000, target_vocabulary=37_000))


def preset(arch: str) -> TransformerSettings:
    settings = presets("seq2seq")[arch]
    assert isinstance(settings, TransformerSettings)
    return settings


def test_base_has_the_papers_sizes() -> None:
    """Slide "The Transformer, base": d_model 512, 8 heads of 64, FFN 2048, 6 + 6 layers."""
    base = preset("transformer-base")
    assert (base.width, base.heads, base.ffn_width, base.encoder_layers, base.decoder_layers) == (512, 8, 2048, 6, 6)
    with torch.device("meta"):
        model = models.build(base, source_vocabulary=37_000, target_vocabulary=37_000)
    first = next(module for module in model.modules() if isinstance(module, SelfAttention))
    key, _ = first.start(1, 1)
    assert key.shape == (1, 1, 8, 0, 64)
    assert first.qkv.weight.shape == (3 * 512, 512)


def test_big_has_the_papers_sizes() -> None:
    """Table 3 of the paper, "big": d_model 1024, 16 heads, FFN 4096, 6 + 6 layers, dropout 0.3."""
    big = preset("transformer-big")
    assert (big.width, big.heads, big.ffn_width, big.encoder_layers, big.decoder_layers) == (1024, 16, 4096, 6, 6)
    assert big.dropout == 0.3


def test_base_has_sixty_five_million_parameters() -> None:
    """Table 3 of the paper, base: 65 million with a shared vocabulary of 37,000."""
    assert 63e6 <= parameters(preset("transformer-base")) <= 66e6


def test_big_has_two_hundred_and_thirteen_million_parameters() -> None:
    """Table 3 of the paper, big: 213 million with a shared vocabulary of 37,000."""
    assert 208e6 <= parameters(preset("transformer-big")) <= 216e6


@pytest.mark.parametrize("heads", [1, 2, 4, 16])
def test_one_head_or_eight_the_same_number_of_parameters(heads: int) -> None:
    """Slide "Multi-head attention": heads split the width, they do not add to it."""
    base = preset("transformer-base")
    assert parameters(dataclasses.replace(base, heads=heads)) == parameters(base)


# ---------------------------------------------------------------------------------------------------------------------
# Complexity per layer, in multiply-adds counted (benchmarks/layers.py measures seconds and bytes)


def operations(run: Callable[[], object]) -> int:
    """Floating-point operations of all matrix products; the fused kernels are unfolded so that they can be counted."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def heads_of(length: int, width: int) -> list[Tensor]:
    return [torch.randn(1, 1, length, width) for _ in range(3)]


def test_self_attention_costs_n_squared_d() -> None:
    """Slide "Complexity per layer": self-attention O(n^2 d): scores and sum, n^2 d multiply-adds each."""
    for n, d in [(64, 16), (128, 16), (128, 32)]:
        assert operations(lambda n=n, d=d: attend(*heads_of(n, d))) == 2 * (2 * n * n * d)


def test_restricted_self_attention_costs_r_n_d() -> None:
    """Slide "Complexity per layer": restricted self-attention O(r n d): linear in n, and never above 2 r keys each."""
    r, d = 64, 16
    short, long = (operations(lambda n=n: attend_nearby(*heads_of(n, d), None, r)) for n in (256, 1024))
    assert long == 4 * short
    assert r * 256 * d <= short / 4 <= 2 * r * 256 * d


def test_a_recurrent_layer_costs_n_d_squared() -> None:
    """Slide "Complexity per layer": recurrent O(n d^2): four gates read the input and the state at each step."""
    n, d = 10, 16
    cell, x = nn.LSTMCell(d, d), torch.randn(1, d)

    def read() -> None:
        state = None
        for _ in range(n):
            state = cell(x, state)

    assert operations(read) == 2 * (8 * n * d * d)


def test_a_convolutional_layer_costs_k_n_d_squared() -> None:
    """Slide "Complexity per layer": convolution O(k n d^2)."""
    n, d = 64, 16
    for k in (3, 5):
        layer, x = nn.Conv1d(d, d, k), torch.randn(1, d, n + k - 1)
        assert operations(lambda layer=layer, x=x: layer(x)) == 2 * (k * n * d * d)


def test_the_root_keeps_the_variance_at_one() -> None:
    """Slide "Why divide by sqrt(d_k)": products of unit vectors of width d_k have variance d_k; the root undoes it."""
    for width in (4, 64, 256):
        scores = ScaledDotProductScore()(torch.randn(400, width), torch.randn(400, width))
        assert scores.var().item() == pytest.approx(1.0, abs=0.1)
        assert (scores * math.sqrt(width)).var().item() == pytest.approx(width, rel=0.1)
