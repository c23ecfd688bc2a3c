"""The moving average of weights."""

import torch
from torch import nn

from regard.training.average import Average


def test_average_follows_its_formula_and_leaves_the_model_alone():
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    average = Average(model, decay=0.5)
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
    average = Average(model, decay=0.0)
    with torch.no_grad():
        model.weight.fill_(3.0)
    average.update(1)
    assert torch.equal(average.named()["weight"], model.weight)
