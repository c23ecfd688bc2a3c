"""Frozen rows: no optimizer, weight decay or average changes them; the other rows learn."""

import dataclasses

import pytest
import torch

from regard.config import TrainSettings
from regard.training.averaging import make_average
from regard.training.device import clip_gradients
from regard.training.frozen import FrozenRows
from regard.training.optimizer import make_optimizer
from tests.toys import TOYS, build, sentences, tokens

NAME = "encoder.embed.tokens.weight"


@pytest.mark.parametrize("optimizer", ["adam", "muon", "adagrad"])
@pytest.mark.parametrize("average", [{"ema_decay": 0.9}, {"average_checkpoints": 3, "validate_every": 1}])
def test_frozen_rows_do_not_change_and_the_others_do(optimizer, average):
    model = build(dataclasses.replace(TOYS["luong-dot"], tie_embeddings="none")).train()
    settings = TrainSettings(optimizer=optimizer, weight_decay=0.1, learning_rate=0.01, **average)
    steps, mean = make_optimizer(model, settings), make_average(model, settings)
    table = dict(model.named_parameters())[NAME]
    rows, others = [2, 5, 7], [1, 3, 4]
    before, frozen = table.detach().clone(), FrozenRows(model, {NAME: rows})
    for step in range(1, 4):
        steps.zero_grad()
        model(sentences([9, 8]), tokens(2, 4)).square().sum().backward()
        frozen.clear_gradients()
        assert not table.grad[rows].any()
        clip_gradients(model, 1.0)
        with frozen.kept():
            steps.step()
        mean.update(step)
        mean.checkpoint(step)
        frozen.correct(mean)
    assert torch.equal(table[rows], before[rows])
    assert torch.equal(mean.named()[NAME][rows], before[rows])
    assert not torch.equal(table[others], before[others])


def test_rows_of_a_sparse_gradient_are_cleared():
    class Table(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(6, 2, sparse=True)

    model = Table()
    model.table(torch.tensor([1, 3, 1])).sum().backward()
    FrozenRows(model, {"table.weight": [1, 5]}).clear_gradients()
    gradient = model.table.weight.grad.to_dense()
    assert not gradient[1].any()
    assert gradient[3].tolist() == [1, 1]
