"""The moving average of weights, and the mean of the last checkpoints."""

import pytest
import torch
from torch import nn

from regard.config import TrainSettings
from regard.training.averaging import CheckpointAverage, ExponentialMovingAverage, WeightAverage, make_average


def test_average_follows_its_formula_and_leaves_the_model_alone():
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    average = ExponentialMovingAverage(model, 0.5)
    expected = 1.0
    for step in (1, 2, 3):
        with torch.no_grad():
            model.weight.add_(1.0)
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.item()
    assert abs(average.named()["weight"].item() - expected) < 1e-6
    with average.applied():
        assert abs(model.weight.item() - expected) < 1e-6
    assert model.weight.item() == 4.0


def test_decay_zero_means_the_weights_themselves():
    model = nn.Linear(2, 2)
    average = make_average(model, TrainSettings(ema_decay=0.0))
    with torch.no_grad():
        model.weight.fill_(3.0)
    average.update(1)
    assert torch.equal(average.named()["weight"], model.weight)


def walk(average: WeightAverage, model: nn.Linear, steps: range) -> None:
    for step in steps:
        with torch.no_grad():
            model.weight.fill_(float(step))
        average.update(step)
        if step % 2 == 0:
            average.checkpoint(step)


def test_the_last_checkpoints_are_averaged():
    model = nn.Linear(1, 1, bias=False)
    average = CheckpointAverage(model, 3, every=2)
    walk(average, model, range(1, 2))
    assert average.named()["weight"].item() == 1.0  # before the first checkpoint: the weights themselves
    walk(average, model, range(2, 6))
    assert average.named()["weight"].item() == 3.0  # of 2 and 4; 5 is not one
    walk(average, model, range(6, 12))
    assert average.named()["weight"].item() == 8.0  # of 6, 8 and 10
    with average.applied():
        assert model.weight.item() == 8.0
    assert model.weight.item() == 11.0
    average.checkpoint(11)  # the last validation comes when training ends
    assert average.named()["weight"].item() == pytest.approx((8 + 10 + 11) / 3)


def test_what_is_remembered_goes_on_as_before():
    first, second = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    settings = TrainSettings(average_checkpoints=3, validate_every=2)
    one, other = make_average(first, settings), make_average(second, settings)
    walk(one, first, range(1, 8))
    walk(other, second, range(1, 12))  # a path that is given up
    other.kept.clear()
    for place, tensor in one.tensors():
        other.load(place, tensor.clone())
    walk(one, first, range(8, 11))
    walk(other, second, range(8, 11))
    assert torch.equal(one.named()["weight"], other.named()["weight"])


def test_a_checkpoint_is_allocated_once(monkeypatch):
    made = []
    monkeypatch.setattr(torch, "empty_like", lambda tensor: made.append(tensor) or torch.zeros(tensor.shape))
    model = nn.Linear(2, 2)
    average = CheckpointAverage(model, 2, 10)
    for name in ("checkpoint.0.weight", "checkpoint.0.bias", "checkpoint.1.weight", "checkpoint.1.bias"):
        average.load(name, torch.ones_like(dict(model.named_parameters())[name[13:]]))
    assert len(made) == 4  # two parameters in each of two checkpoints
    assert all(torch.equal(tensor, torch.ones_like(tensor)) for kept in average.kept.values() for tensor in kept)
