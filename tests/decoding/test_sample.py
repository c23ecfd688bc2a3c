"""Sampling from distributions written down by hand: a test a field."""

import pytest
import torch

from regard.decoding.greedy import Sample, uniform

SHARES = torch.tensor([0.4, 0.1, 0.3, 0.2])
DRAWS = 4000


def draw(how, shares=SHARES):
    """Shares of each token among evenly spread chances."""
    chance = (torch.arange(DRAWS) + 0.5) / DRAWS
    drawn = how.draw(shares.log().expand(DRAWS, 1, -1).contiguous(), chance[:, None])
    return torch.bincount(drawn.flatten(), minlength=len(shares)) / DRAWS


def expect(found, *shares):
    assert found.tolist() == pytest.approx(shares, abs=2 / DRAWS)


def test_the_whole_distribution():
    expect(draw(Sample()), 0.4, 0.1, 0.3, 0.2)


def test_temperature():
    squared = SHARES**2 / (SHARES**2).sum()  # 1 / 0.5 = 2
    expect(draw(Sample(temperature=0.5)), *squared.tolist())
    expect(draw(Sample(temperature=0.0)), 1, 0, 0, 0)


def test_top_k():
    expect(draw(Sample(top_k=2)), 4 / 7, 0, 3 / 7, 0)
    expect(draw(Sample(top_k=9)), 0.4, 0.1, 0.3, 0.2)


def test_top_p():
    expect(draw(Sample(top_p=0.6)), 4 / 7, 0, 3 / 7, 0)  # 0.4 does not reach 0.6, 0.4 + 0.3 does
    expect(draw(Sample(top_p=0.01)), 1, 0, 0, 0)  # the likeliest always stays


def test_epsilon():
    expect(draw(Sample(epsilon=0.15)), 4 / 9, 0, 3 / 9, 2 / 9)
    expect(draw(Sample(epsilon=0.9)), 1, 0, 0, 0)


def test_what_is_forbidden_is_never_drawn():
    shares = torch.tensor([0.0, 1.0, 0.0])
    chance = torch.tensor([[0.0], [1 - 2**-24]])
    assert Sample().draw(shares.log().expand(2, 1, -1).contiguous(), chance).tolist() == [[1], [1]]


def test_dice_are_even_and_unrelated():
    rolls = torch.stack([uniform(torch.arange(200), 10, place) for place in range(10)])
    assert rolls.min() >= 0
    assert rolls.max() < 1
    shares = torch.histc(rolls, bins=10, min=0, max=1) / rolls.numel()
    assert shares.tolist() == pytest.approx([0.1] * 10, abs=0.01)  # 20,000 rolls: three deviations are 0.0064
    for left, right in ((rolls[1:], rolls[:-1]), (rolls[:, 1:], rolls[:, :-1]), (rolls[..., 1:], rolls[..., :-1])):
        pair = torch.corrcoef(torch.stack([left.flatten(), right.flatten()]))
        assert abs(float(pair[0, 1])) < 0.03


def test_dice_depend_on_the_seed_alone():
    together = uniform(torch.tensor([7, 9]), 3, 4)
    alone = uniform(torch.tensor([9]), 3, 4)
    assert torch.equal(together[1:], alone)
