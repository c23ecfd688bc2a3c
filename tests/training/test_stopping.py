"""How training ends: by cooling down, whatever ends it; and that a run with a later end goes on."""

import time

import pytest

from regard.config import TrainSettings
from regard.training.checkpoint import TrainingProgress
from regard.training.schedule import count_validation, is_best, reason_to_stop, start_cooldown
from regard.training.signals import StopRequest
from regard.training.trainer import Trainer, Validation
from tests.training.test_trainer import Fit, Line, Notes


class Rates(Notes):
    def __init__(self):
        super().__init__()
        self.rates = []

    def on_step(self, update, progress):
        self.rates.append(update.rate)


def fit(tmp_path, scores=None, leave_at=0, **settings):
    defaults = {"learning_rate": 0.1, "warmup_steps": 1, "schedule": "constant", "ema_decay": 0.0, "cooldown": 0.25}
    settings = TrainSettings(**(defaults | {"validate_every": 10, "checkpoint_every": 10, "max_steps": 80} | settings))
    rates, stop, model = Rates(), StopRequest(), Line()
    task = Fit()
    task.scores = [] if scores is None else scores
    trainer = Trainer(model, task, settings, tmp_path / "checkpoints", [rates])
    flops = task.flops

    def count(batch):  # asked once an update
        stop.requested = trainer.progress.cooldown_until > 0 and trainer.progress.step + 1 == leave_at
        return flops(batch)

    task.flops = count
    progress = trainer.fit(lambda weights: None, stop)
    rates.weight = model.weight.item()
    return progress, rates


def test_the_last_quarter_of_the_updates_cools(tmp_path):
    progress, watched = fit(tmp_path)
    assert progress.stopped == "80 steps done"
    assert watched.rates[:60] == [0.1] * 60
    assert watched.rates[60:] == pytest.approx([0.1 * (19 - late) / 20 for late in range(20)])
    assert watched.notes == ["60 of 80 steps done: cooldown over 20 steps"]


def test_the_task_knows_while_it_cools(tmp_path):
    class Asked(Fit):
        def batch(self, position):
            found.append(self.stage.cooldown)
            return super().batch(position)

    found = []
    settings = TrainSettings(
        learning_rate=0.1, warmup_steps=1, ema_decay=0.0, cooldown=0.25, validate_every=10, max_steps=80
    )
    Trainer(Line(), Asked(), settings, tmp_path / "checkpoints", [Notes()]).fit(lambda weights: None, StopRequest())
    assert found == [False] * 60 + [True] * 20


def test_patience_begins_the_cooling_and_is_not_asked_again(tmp_path):
    scores = [5.0, 4.0, 4.0, 6.0, 3.0, 3.0, 3.0]
    progress, watched = fit(tmp_path, scores, patience=2, max_steps=1000, cooldown=0.5)
    assert (progress.cooldown_from, progress.cooldown_until) == (10, 20)  # from the best: 10 of 20 are half
    assert watched.notes == ["no better validation in 2: back to step 10: cooldown over 10 steps"]
    assert progress.stopped == "no better validation in 2, then the cooldown"
    assert (progress.step, progress.best_step) == (20, 20)  # what cooling brought is kept
    assert progress.flops == 400.0  # 30 updates and 10 more: what was given up was spent all the same
    assert watched.rates[-1] == pytest.approx(0.0)


def test_going_back_to_the_best_survives_a_stop(tmp_path):
    settings = {"patience": 2, "max_steps": 1000, "cooldown": 0.5}
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole, straight = fit(tmp_path / "whole", [1.0, 5.0, 4.0, 4.0], **settings)
    parts, _ = fit(tmp_path / "parts", [1.0, 5.0, 4.0, 4.0], leave_at=27, **settings)
    assert (parts.stopped, parts.step, parts.cooldown_from) == ("", 27, 20)
    parts, resumed = fit(tmp_path / "parts", **settings)
    assert (parts.step, parts.stopped) == (whole.step, whole.stopped)
    assert resumed.weight == straight.weight


def test_a_damaged_best_state_is_not_gone_back_to(tmp_path):
    class Damaging(list):
        def pop(self, place):
            for path in (tmp_path / "checkpoints" / "best").glob("*.safetensors"):
                path.write_bytes(b"")
            return super().pop(place)

    progress, watched = fit(tmp_path, Damaging([5.0, 4.0, 4.0, 6.0]), patience=2, max_steps=1000, cooldown=0.5)
    assert progress.cooldown_from == 30
    assert watched.notes == ["no better validation in 2: cooldown over 30 steps"]


def test_minutes_begin_the_cooling(tmp_path):
    progress, watched = fit(tmp_path, max_minutes=1e-6, max_steps=1000)
    assert (progress.cooldown_from, progress.step) == (1, 1)
    assert progress.stopped == "1e-06 minutes spent"
    assert "cooldown" in watched.notes[0]


def test_validations_count_among_the_minutes(tmp_path):
    settings = TrainSettings(
        warmup_steps=1,
        ema_decay=0.0,
        cooldown=0.0,
        validate_every=1,
        checkpoint_every=10,
        max_steps=1000,
        max_minutes=0.02,
    )
    task = Fit()
    task.validate = lambda model: time.sleep(0.3) or Validation({"loss": 1.0}, 1.0)
    progress = Trainer(Line(), task, settings, tmp_path / "checkpoints", [Rates()]).fit(
        lambda weights: None, StopRequest()
    )
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


def test_an_end_that_is_a_little_later_is_trained_to(tmp_path):
    fit(tmp_path)
    progress, watched = fit(tmp_path, max_steps=84)
    assert progress.step == 84
    assert watched.rates == pytest.approx([0.1, 0.1 * 2 / 3, 0.1 / 3, 0.0])


def test_more_patience_lets_it_go_on(tmp_path):
    fit(tmp_path, [5.0, 4.0, 4.0, 6.0], patience=2, max_steps=1000)
    progress, watched = fit(tmp_path, [7.0, *[6.0] * 5], patience=4, max_steps=1000)
    assert watched.rates[0] == 0.1
    assert progress.stopped == "no better validation in 4, then the cooldown"


def test_without_a_change_a_stop_while_cooling_changes_nothing(tmp_path):
    for leave_at in (70, 75, 0):
        progress, watched = fit(tmp_path, leave_at=leave_at)
    assert (progress.step, progress.cooldown_from, len(watched.rates)) == (80, 60, 5)


def test_a_best_state_of_another_time_is_not_gone_back_to(tmp_path):
    fit(tmp_path, [1.0, 2.0, 3.0, 4.0, 5.0, 5.5, 7.0, 9.0], patience=2)  # the best came while cooling
    best = sorted((tmp_path / "checkpoints" / "best").glob("*.json"))
    assert [path.stem for path in best] == ["00000060"]
    progress, watched = fit(tmp_path, [7.5, 8.0, 7.0, 7.0, 8.5], patience=2, max_steps=1000)
    assert progress.best_score == 9.0  # the weights of that time are kept, but patience compares with its own
    assert watched.notes == ["no better validation in 2: back to step 100: cooldown over 33 steps"]


def test_patience_begins_anew_at_full_dropout(tmp_path):
    scores = [5.0, 6.0, 3.0, 4.0, 3.0, 3.0, 7.0]
    progress, watched = fit(tmp_path, scores, patience=2, max_steps=1000, cooldown=0.5, regularization_warmup=25)
    assert watched.notes == ["no better validation in 2: back to step 40: cooldown over 40 steps"]
    assert (progress.best_score, progress.best_step) == (7.0, 50)


def test_what_ran_out_first_is_the_reason():
    spent = TrainingProgress(
        step=200, cooldown_from=100, cooldown_until=200, validations_without_improvement=3, seconds=570.0
    )
    assert (
        reason_to_stop(spent, TrainSettings(patience=3, max_minutes=10, cooldown=0.3))
        == "no better validation in 3, then the cooldown"
    )
    spent.validations_without_improvement = 1
    assert reason_to_stop(spent, TrainSettings(patience=3, max_minutes=10, cooldown=0.3)).startswith(
        "9.5 of 10 minutes spent"
    )


def test_cooling_fits_into_the_minutes_that_are_left():
    progress = TrainingProgress(step=1000, seconds=20 * 60)
    assert start_cooldown(progress, TrainSettings(max_minutes=22, cooldown=0.2)) == 100
    assert (progress.cooldown_from, progress.cooldown_until) == (1000, 1100)


def test_patience_also_asks_the_loss_and_goes_back_to_where_it_was_lowest(tmp_path):
    settings = TrainSettings(
        learning_rate=0.1, warmup_steps=1, schedule="constant", ema_decay=0.0, cooldown=0.5, patience=2, max_steps=1000,
        validate_every=10, checkpoint_every=10,
    )  # fmt: skip
    found = [(5.0, 2.0), (4.0, 1.9), (4.0, 1.8), (4.0, 1.7), (4.9, 1.75), (4.0, 1.75), (4.5, 1.6), (5.5, 1.5)]
    task, rates, kept = Fit(), Rates(), []

    def validate(model):
        score, loss = found.pop(0) if found else (5.2, 1.55)
        return Validation({"bleu": score, "loss": loss}, score, loss=loss)

    task.validate = validate
    trainer = Trainer(Line(), task, settings, tmp_path / "checkpoints", [rates])
    progress = trainer.fit(lambda weights: kept.append(trainer.progress.step), StopRequest())
    assert rates.notes == ["no better validation in 2: back to step 40: cooldown over 40 steps"]
    assert kept == [10, 60]  # by the score; cooled for half of its time
    assert (progress.step, progress.best_step, progress.best_score, progress.best_loss_since_reset) == (
        80,
        60,
        5.5,
        1.5,
    )


def test_a_score_that_is_no_number_is_never_better():
    progress, settings = TrainingProgress(), TrainSettings()
    scores = (-5.0, -4.0, float("nan"), float("inf"), -9.0, -4.5)
    found = []
    for score in scores:
        found.append(is_best(progress, score))
        count_validation(progress, settings, score)
    assert found == [True, True, *[False] * 4]
    assert (progress.best_score, progress.validations_without_improvement) == (-4.0, 2)
    count_validation(progress, settings, -1.0, float("nan"))
    assert (progress.best_score, progress.best_loss_since_reset) == (-4.0, None)
