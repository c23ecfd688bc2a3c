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

BATCH = SimpleNamespace(target_tokens=7)


def loss(model, batch):
    value = model.weight.sum()
    return Loss(value, value.detach(), batch.target_tokens)


def failing(error):
    def loss(model, batch):
        raise error

    return loss


def test_weights_and_gradients_are_left_as_they_were():
    model = nn.Linear(3, 3)
    before = model.weight.detach().clone()
    check_memory(model, loss, BATCH, TrainSettings())
    assert torch.equal(model.weight, before)
    assert model.weight.grad is None


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA"), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_out_of_memory_says_what_to_do(error):
    with pytest.raises(TrainingError, match=r"train\.batch_tokens=2048 --set train\.gradient_accumulation=2"):
        check_memory(nn.Linear(3, 3), failing(error), BATCH, TrainSettings(batch_tokens=4096))


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="shapes"):
        check_memory(nn.Linear(3, 3), failing(RuntimeError("shapes do not fit")), BATCH, TrainSettings())


def test_weakened_dropout_drops_less():
    layer = Dropout(0.5).train()
    torch.manual_seed(0)
    x = torch.ones(100_000)
    for strength in (0.0, 0.5, 1.0):
        set_dropout_strength(layer, strength)
        dropped = (layer(x) == 0).float().mean().item()
        assert dropped == pytest.approx(0.5 * strength, abs=0.01)
        assert layer(x).mean().item() == pytest.approx(1.0, abs=0.02)
