"""The learning rate."""

import pytest

from regard.config import TrainSettings
from regard.training.checkpoint import TrainingProgress
from regard.training.schedule import ScheduleStage, learning_rate, regularization_strength, start_cooldown


def test_inverse_square_root_is_the_papers_up_to_a_factor():
    settings = TrainSettings(warmup_steps=4000, learning_rate=1.0)
    paper = [min(step**-0.5, step * 4000**-1.5) for step in (1, 100, 4000, 16000)]
    ours = [learning_rate(step, settings) for step in (1, 100, 4000, 16000)]
    assert ours == pytest.approx([value * 4000**0.5 for value in paper])


def test_cosine_ends_at_zero_and_constant_stays():
    cosine = TrainSettings(schedule="cosine", warmup_steps=10, max_steps=110, learning_rate=0.5)
    assert learning_rate(10, cosine) == pytest.approx(0.5)
    assert learning_rate(60, cosine) == pytest.approx(0.25)
    assert learning_rate(110, cosine) == pytest.approx(0.0)
    assert learning_rate(10_000, TrainSettings(schedule="constant", learning_rate=0.5)) == 0.5


def test_cooling_falls_to_zero_from_where_the_rate_was():
    settings = TrainSettings(schedule="constant", warmup_steps=10, learning_rate=0.5)
    rates = [learning_rate(step, settings, cooldown=(100, 120)) for step in (100, 105, 110, 120, 130)]
    assert rates == pytest.approx([0.5, 0.375, 0.25, 0.0, 0.0])
    slower = TrainSettings(schedule="inverse-sqrt", warmup_steps=100, learning_rate=1.0)
    assert learning_rate(400, slower, cooldown=(300, 500)) == pytest.approx(0.5 * 0.5)


def test_cooling_is_the_share_that_was_asked_for_and_ends_in_time():
    settings = TrainSettings(cooldown=0.2, max_steps=1000)
    assert start_cooldown(TrainingProgress(step=400), settings) == 100  # 100 of 500
    assert start_cooldown(TrainingProgress(step=800), settings) == 200
    assert start_cooldown(TrainingProgress(step=950), settings) == 50


def test_regularisation_climbs_and_stays():
    settings = TrainSettings(regularization_warmup=200)
    assert [regularization_strength(step, settings) for step in (1, 100, 200, 300)] == [0.005, 0.5, 1.0, 1.0]
    assert regularization_strength(1, TrainSettings()) == 1.0


def test_what_makes_it_harder_ends_when_the_rate_falls():
    assert [ScheduleStage(share).augmentation_strength for share in (0.1, 1.0)] == [0.1, 1.0]
    assert (ScheduleStage(1.0, cooldown=True).augmentation_strength, ScheduleStage(1.0, cooldown=True).strength) == (
        0.0,
        1.0,
    )
