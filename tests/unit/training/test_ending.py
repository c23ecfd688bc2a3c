"""How training ends: by cooling down, whatever ends it; and that a run with a later end goes on."""

import time

import pytest
from tests.unit.training.test_loop import Fit, Line, Notes

from regard.config import Train
from regard.training.loop import Trainer, Validation
from regard.training.signals import StopRequest


class Rates(Notes):
    def __init__(self):
        super().__init__()
        self.rates = []

    def updated(self, update, progress):
        self.rates.append(update.rate)


def fit(tmp_path, scores=None, **settings):
    defaults = {"learning_rate": 0.1, "warmup": 1, "schedule": "constant", "average": 0.0, "cooldown": 0.25}
    settings = Train(**(defaults | {"validate_every": 10, "state_every": 10, "max_steps": 80} | settings))
    rates = Rates()
    trainer = Trainer(Line(), Fit(scores=scores), settings, tmp_path / "states", [rates])
    return trainer.fit(lambda weights: None, StopRequest()), rates


def test_the_last_quarter_of_the_updates_cools(tmp_path):
    progress, watched = fit(tmp_path)
    assert progress.stopped == "80 updates made"
    assert watched.rates[:60] == [0.1] * 60
    assert watched.rates[60:] == pytest.approx([0.1 * (19 - late) / 20 for late in range(20)])
    assert watched.notes == ["60 of 80 updates made: cooling down over 20 updates"]


def test_patience_begins_the_cooling_and_is_not_asked_again(tmp_path):
    scores = [5.0, 4.0, 4.0, 6.0, 3.0, 3.0, 3.0]
    progress, watched = fit(tmp_path, scores, patience=2, max_steps=1000)
    assert (progress.cooling_from, progress.cooling_until) == (30, 40)  # 10 of 40 are a quarter
    assert progress.stopped == "no better validation in 2, then cooled down"
    assert (progress.step, progress.best_step) == (40, 40)  # what cooling brought is kept
    assert watched.rates[-1] == pytest.approx(0.0)


def test_minutes_begin_the_cooling(tmp_path):
    progress, watched = fit(tmp_path, minutes=1e-6, max_steps=1000)
    assert (progress.cooling_from, progress.step) == (1, 1)
    assert progress.stopped == "1e-06 minutes spent"
    assert "cooling down" in watched.notes[0]


def test_validations_count_among_the_minutes(tmp_path):
    settings = Train(
        warmup=1, average=0.0, cooldown=0.0, validate_every=1, state_every=10, max_steps=1000, minutes=0.02
    )
    task = Fit()
    task.validate = lambda model: time.sleep(0.3) or Validation({"loss": 1.0}, 1.0)
    progress = Trainer(Line(), task, settings, tmp_path / "states", [Rates()]).fit(lambda weights: None, StopRequest())
    assert progress.stopped == "0.02 minutes spent"
    assert progress.step <= 4  # 1.2 seconds; without the validations there would be hundreds
    assert progress.seconds >= 1.2


def test_a_later_end_warms_up_again(tmp_path):
    fit(tmp_path)
    progress, watched = fit(tmp_path, max_steps=160)
    assert progress.step == 160
    assert watched.rates[:40] == [0.1] * 40
    assert watched.rates[-1] == pytest.approx(0.0)


def test_what_was_ended_by_patience_stays_ended(tmp_path):
    scores = [5.0, 4.0, 4.0, 6.0]
    first, _ = fit(tmp_path, scores, patience=2, max_steps=1000)
    again, watched = fit(tmp_path, scores, patience=2, max_steps=1000)
    assert again.stopped == first.stopped
    assert watched.rates == []
