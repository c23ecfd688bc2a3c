"""Dropout: the right share, the right expectation, the same mask both ways."""

from __future__ import annotations

import math

import pytest
import torch

from regard.errors import ModelError
from regard.layers.dropout import Dropout, Rows, dropout_rows, keep_mask

CPU = torch.device("cpu")


@pytest.mark.parametrize("dropped", [1, 26, 77, 128, 255])
def test_each_lane_of_a_draw_drops_its_share(dropped: int) -> None:
    """Eight elements share a 64-bit draw. A draw that leaves the sign bit zero would drop the eighth twice as often."""
    draws = 40_000
    shares = 1 - keep_mask(torch.Size([draws, 8]), dropped, CPU).float().mean(0)
    rate = dropped / 256
    assert (shares - rate).abs().max() < 5 * math.sqrt(rate * (1 - rate) / draws)


def test_lanes_are_independent() -> None:
    dropped = 1 - keep_mask(torch.Size([40_000, 8]), 128, CPU).float()
    correlation = torch.corrcoef(dropped.T)
    assert (correlation - torch.eye(8)).abs().max() < 0.03


@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 3, 7), (0, 4)])
def test_the_mask_takes_any_shape(shape: tuple[int, ...]) -> None:
    mask = keep_mask(torch.Size(shape), 100, CPU)
    assert mask.shape == shape
    assert mask.dtype == torch.bool


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_the_expectation_stays(rate: float) -> None:
    layer, x = Dropout(rate), torch.full((400_000,), 3.0)
    dropped = layer(x)
    assert dropped.mean().item() == pytest.approx(3.0, abs=0.03)
    assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=0.005)
    kept = dropped[dropped != 0]
    assert kept.unique().tolist() == pytest.approx([3.0 * 256 / (256 - round(rate * 256))])


def test_the_gradient_passes_where_the_value_passed() -> None:
    layer, x = Dropout(0.4), torch.ones(5000, requires_grad=True)
    dropped = layer(x)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())


def test_the_gradient_of_a_value_that_is_laid_out_across() -> None:
    layer, x = Dropout(0.4), torch.ones(50, 70, requires_grad=True)
    dropped = layer(x.T)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach().T)


def test_the_input_is_left_alone() -> None:
    x = torch.ones(100)
    Dropout(0.5)(x)
    assert x.min() == 1


def test_evaluation_gives_the_very_same_tensor_back() -> None:
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_seed_decides() -> None:
    layer, x = Dropout(0.5), torch.ones(1000)
    torch.manual_seed(7)
    first, second = layer(x), layer(x)
    torch.manual_seed(7)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


def test_a_rate_next_to_one_leaves_something() -> None:
    dropped = Dropout(0.9999)(torch.ones(100_000))
    assert dropped.isfinite().all()
    assert dropped.max() == 256


def test_it_shows_its_rate() -> None:
    assert "rate=0.102" in repr(Dropout(0.1))  # 26 / 256


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_a_shared_batch_meet_the_masks_of_the_whole(times: int, axis: int) -> None:
    """Whether one process computes 7 rows or two compute 4 and 3 of them; also when the batch stands there twice."""
    total, layer = 7, Dropout(0.4, rows=axis)
    shape = (total * times, 5, 6) if axis == 0 else (5, total * times, 6)
    torch.manual_seed(1)
    whole = layer(torch.ones(shape))
    for rank in range(2):
        index = torch.arange(rank, total, 2)
        taken = torch.cat([index + total * repeat for repeat in range(times)])
        torch.manual_seed(1)
        with dropout_rows(Rows(index, total)):
            part = layer(torch.ones(shape).index_select(axis, taken))
        assert torch.equal(part, whole.index_select(axis, taken))


def test_a_wrong_axis_is_told() -> None:
    with dropout_rows(Rows(torch.arange(3), 6)), pytest.raises(ModelError, match="is not a batch of 3 rows"):
        Dropout(0.5)(torch.ones(4, 3))
    Dropout(0.5)(torch.ones(4, 3))  # outside of the block, nothing is shared
