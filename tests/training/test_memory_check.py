"""The largest batch first."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from regard.config import TrainSettings
from regard.errors import TrainingError
from regard.layers.dropout import Dropout, set_dropout_strength
from regard.training.device import check_memory
from regard.training.loss import Loss


class Task:
    def __init__(self, error=None):
        self.error = error

    def largest(self):
        return SimpleNamespace(target_tokens=7)

    def loss(self, model, batch):
        if self.error:
            raise self.error
        value = model.weight.sum()
        return Loss(value, value.detach(), batch.target_tokens)


def test_weights_and_gradients_are_left_as_they_were():
    model = nn.Linear(3, 3)
    before = model.weight.detach().clone()
    check_memory(model, Task(), TrainSettings())
    assert torch.equal(model.weight, before)
    assert model.weight.grad is None


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA"), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_out_of_memory_says_what_to_do(error):
    with pytest.raises(TrainingError, match=r"train\.batch_tokens=2048 --set train\.gradient_accumulation=2"):
        check_memory(nn.Linear(3, 3), Task(error), TrainSettings(batch_tokens=4096))


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="shapes"):
        check_memory(nn.Linear(3, 3), Task(RuntimeError("shapes do not fit")), TrainSettings())


def test_weakened_dropout_drops_less():
    layer = Dropout(0.5).train()
    torch.manual_seed(0)
    x = torch.ones(100_000)
    for strength in (0.0, 0.5, 1.0):
        set_dropout_strength(layer, strength)
        dropped = (layer(x) == 0).float().mean().item()
        assert dropped == pytest.approx(0.5 * strength, abs=0.01)
        assert layer(x).mean().item() == pytest.approx(1.0, abs=0.02)
