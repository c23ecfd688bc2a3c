"""The learning rate."""

import pytest

from regard.config import Train
from regard.training.schedule import learning_rate


def test_inverse_square_root_is_the_papers_up_to_a_factor():
    settings = Train(warmup=4000, learning_rate=1.0)
    paper = [min(step**-0.5, step * 4000**-1.5) for step in (1, 100, 4000, 16000)]
    ours = [learning_rate(step, settings) for step in (1, 100, 4000, 16000)]
    assert ours == pytest.approx([value * 4000**0.5 for value in paper])


def test_cosine_ends_at_zero_and_constant_stays():
    cosine = Train(schedule="cosine", warmup=10, max_steps=110, learning_rate=0.5)
    assert learning_rate(10, cosine) == pytest.approx(0.5)
    assert learning_rate(60, cosine) == pytest.approx(0.25)
    assert learning_rate(110, cosine) == pytest.approx(0.0)
    assert learning_rate(10_000, Train(schedule="constant", learning_rate=0.5)) == 0.5
