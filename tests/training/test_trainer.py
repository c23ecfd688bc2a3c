"""The loop on a task so small that what should happen is known."""

import math
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from regard.config import TrainSettings
from regard.errors import TrainingError
from regard.training.loss import Loss
from regard.training.signals import StopRequest
from regard.training.trainer import Trainer, Validation


class Line(nn.Module):
    """One weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1))


class Fit:
    """Bring the weight to 3; `bad` positions give a loss that is not a number; `scores` are the validations' scores."""

    def __init__(self, bad=(), scores=None):
        self.bad, self.scores, self.seen = set(bad), list(scores or []), []

    def batch(self, position):
        self.seen.append(position)
        return SimpleNamespace(target_tokens=2, position=position)

    def mark(self, position):
        return (position // 10, position // 10 * 10)

    def enter(self, epoch, start):
        self.entered = (epoch, start)

    def loss(self, model, batch):
        value = ((model.weight - 3) ** 2).sum() * 2
        if batch.position in self.bad:
            self.bad.discard(batch.position)
            value = value * math.nan
        return Loss(value, value.detach(), 2)

    def flops(self, batch):
        return 10.0

    def validate(self, model):
        score = self.scores.pop(0) if self.scores else -abs(float(model.weight.detach()) - 3)
        return Validation({"loss": -score}, score)


class Notes:
    def __init__(self):
        self.notes = []

    def on_start(self, progress): ...
    def on_step(self, update, progress): ...
    def on_validation(self, validation, progress, *, best): ...
    def close(self): ...

    def on_message(self, message, progress):
        self.notes.append(message)


def fit(tmp_path, task, **settings):
    defaults = {"learning_rate": 0.1, "warmup_steps": 1, "schedule": "constant", "ema_decay": 0.0, "max_steps": 60}
    settings = TrainSettings(**(defaults | {"validate_every": 10, "checkpoint_every": 10} | settings))
    model, kept, notes = Line(), [], Notes()
    trainer = Trainer(model, task, settings, tmp_path / "checkpoints", [notes])
    progress = trainer.fit(lambda weights: kept.append(weights["weight"].item()), StopRequest())
    return model, progress, kept, notes.notes


@pytest.mark.parametrize("clock", ["wall", "processor"])
def test_processor_time_does_not_count_waiting(tmp_path, clock):
    class Waiting(Fit):
        def batch(self, position):
            time.sleep(0.02)
            return super().batch(position)

    _, progress, _, _ = fit(tmp_path, Waiting(), clock=clock, max_steps=30)
    assert (progress.seconds >= 30 * 0.02) is (clock == "wall")
    assert progress.seconds > 0


def test_it_learns_keeps_the_best_and_counts(tmp_path):
    model, progress, kept, _ = fit(tmp_path, Fit())
    assert model.weight.item() == pytest.approx(3.0, abs=0.2)
    assert progress.stopped == "60 steps done"
    assert (progress.step, progress.position, progress.tokens, progress.flops) == (60, 60, 120, 600.0)
    assert 0 < progress.loss < 18  # 2 (0 - 3)^2 at first, nothing at the end
    assert kept[-1] == pytest.approx(3.0, abs=0.2)


def test_accumulation_takes_several_batches_an_update(tmp_path):
    task = Fit()
    _, progress, _, _ = fit(tmp_path, task, gradient_accumulation=3, max_steps=4)
    assert task.seen == list(range(12))
    assert (progress.step, progress.position) == (4, 12)


def test_a_state_says_which_epoch_to_go_on_from(tmp_path):
    fit(tmp_path, Fit(), max_steps=25)
    task = Fit()
    _, progress, _, _ = fit(tmp_path, task, max_steps=27)
    assert task.entered == (2, 20)
    assert task.seen == [25, 26]
    assert (progress.epoch, progress.epoch_start) == (2, 20)


def test_patience_ends_it(tmp_path):
    _, progress, kept, _ = fit(tmp_path, Fit(scores=[5.0, 6.0, 4.0, 6.0, 3.0]), patience=2)
    assert progress.stopped == "no better validation in 2"
    assert (progress.step, progress.best_step) == (40, 40)  # the equal score is kept, but is no better one
    assert len(kept) == 3


def test_scores_of_nothing_do_not_wear_patience_out(tmp_path):
    _, progress, _, _ = fit(tmp_path, Fit(scores=[0.0, 0.0, 0.0, 0.0, 5.0, 4.0]), patience=2)
    assert progress.stopped == "60 steps done"


def test_minutes_end_it(tmp_path):
    _, progress, _, _ = fit(tmp_path, Fit(), max_minutes=1e-6)
    assert progress.stopped == "1e-06 minutes spent"
    assert progress.step == 1


def test_a_loss_that_is_no_number_goes_back_with_half_the_rate(tmp_path):
    model, progress, _, notes = fit(tmp_path, Fit(bad=[15]))
    assert notes == ["the loss diverged at step 16: back to 10, learning rate x 0.5"]
    assert (progress.step, progress.rollbacks, progress.rate_factor) == (60, 1, 0.5)
    assert progress.flops == 650.0  # 15 updates, of which 5 were given up, and 50 more: spent is spent
    assert model.weight.item() == pytest.approx(3.0, abs=0.2)


def test_it_gives_up_after_three_times(tmp_path):
    class Always(Fit):
        def loss(self, model, batch):
            value = model.weight.sum() * math.nan
            return Loss(value, value.detach(), 2)

    with pytest.raises(TrainingError, match=r"set a lower train\.learning_rate"):
        fit(tmp_path, Always())


def test_a_validation_that_is_no_number_is_never_the_best_and_goes_back(tmp_path):
    _, progress, kept, notes = fit(tmp_path, Fit(scores=[-5.0, -4.0, math.nan, -9.0, -4.5, -9.0]), max_steps=50)
    assert notes == ["the validation loss is not finite at step 30: back to 20, learning rate x 0.5"]
    assert (progress.best_score, progress.best_step, progress.step) == (-4.0, 20, 50)
    assert len(kept) == 2  # the two that were the best when they came


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_counts_although_the_score_is_finite(tmp_path, loss):
    class Bleu(Fit):
        def validate(self, model):
            found.append(len(found))
            return Validation({}, 1.0, loss=loss if len(found) == 2 else 1.0)

    found = []
    _, progress, kept, notes = fit(tmp_path, Bleu(), max_steps=30)
    assert notes == ["the validation loss is not finite at step 20: back to 10, learning rate x 0.5"]
    assert (progress.rollbacks, len(kept)) == (1, 3)


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    class Broken(Fit):
        def flops(self, batch):  # asked once an update, before its step
            if batch.position == 12 and not self.bad:
                self.bad.add(-1)
                model.weight.grad.fill_(0)
                model.weight.data.fill_(math.inf)
            return 10.0

    task = Broken()
    settings = TrainSettings(
        learning_rate=0.1, warmup_steps=1, ema_decay=0.0, max_steps=30, validate_every=50, checkpoint_every=13
    )
    model, notes = Line(), Notes()
    trainer = Trainer(model, task, settings, tmp_path / "checkpoints", [notes])
    progress = trainer.fit(lambda weights: None, StopRequest())
    assert notes.notes == ["the weights are not finite at step 13: back to 0, learning rate x 0.5"]
    assert progress.step == 30


def test_after_a_second_explosion_from_a_state_the_one_before_is_taken(tmp_path):
    """The weights of the state after update 20 are finite, but so large that the loss is not."""

    class Large(Fit):
        def flops(self, batch):
            if batch.position == 19 and not self.bad:
                self.bad.add(-1)
                model.weight.data.fill_(1e30)
            return 10.0

    settings = TrainSettings(
        learning_rate=0.1,
        warmup_steps=1,
        schedule="constant",
        ema_decay=0.0,
        max_steps=60,
        validate_every=50,
        checkpoint_every=10,
    )
    model, notes = Line(), Notes()
    trainer = Trainer(model, Large(), settings, tmp_path / "checkpoints", [notes])
    progress = trainer.fit(lambda weights: None, StopRequest())
    assert notes.notes == [
        "the loss diverged at step 21: back to 20, learning rate x 0.5",
        "the loss diverged at step 21: back to 10, learning rate x 0.25",
    ]
    assert (progress.step, progress.rollbacks) == (60, 2)
    assert 2 < model.weight.item() < 3


def test_after_a_rollback_the_best_score_is_still_that_of_the_kept_weights(tmp_path):
    scores = [-9.0, -1.0, -5.0, -5.0, -4.0]  # at 10, 20, then again from 10 on
    _, progress, kept, notes = fit(tmp_path, Fit(bad=[24], scores=scores), checkpoint_every=15, max_steps=40)
    assert notes == ["the loss diverged at step 25: back to 15, learning rate x 0.5"]
    assert (progress.best_score, progress.best_step, len(kept)) == (-1.0, 20, 2)


def test_a_lower_rate_recovers_a_run_that_exploded(tmp_path):
    often = {"validate_every": 1, "checkpoint_every": 1, "max_steps": 60}
    with pytest.raises(TrainingError, match=r"set a lower train\.learning_rate"):
        fit(tmp_path, Fit(), learning_rate=1e30, **often)
    model, progress, _, _ = fit(tmp_path, Fit(), learning_rate=0.2, **often)
    assert (progress.step, progress.rate_factor) == (60, 0.25)  # two explosions until the exploded state is found out
    assert model.weight.item() == pytest.approx(3.0, abs=0.3)
