"""Arithmetic counted from the architecture against what PyTorch counts while it runs."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard import models
from regard.models import presets
from regard.training.flops import count_cost, pair_amounts
from tests.toys import MARKER, toy

ROWS, SOURCE, TARGET, WORDS = 3, 10, 5, 50  # ByteNet extends ten tokens to exactly twelve columns


@pytest.mark.parametrize("arch", presets("seq2seq"))
def test_forward_equals_pytorchs_count(arch):
    settings = dataclasses.replace(toy(arch), dropout=0.0)
    model = models.build(settings, source_vocabulary=WORDS, target_vocabulary=WORDS).eval().requires_grad_(False)
    source = SimpleNamespace(
        ids_BS=torch.randint(MARKER + 1, WORDS, (ROWS, SOURCE)), mask_BS=torch.ones(ROWS, SOURCE, dtype=torch.bool)
    )
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:  # the fused kernel is not counted
        model(source, torch.randint(3, WORDS, (ROWS, TARGET)))
    counted = count_cost(model).forward(**pair_amounts(ROWS, SOURCE, TARGET))
    assert counted == pytest.approx(counter.get_total_flops(), rel=1e-9)


def test_counting_leaves_the_model_as_it_was():
    model = models.build(toy("transformer-tiny"), source_vocabulary=WORDS, target_vocabulary=WORDS).train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    count_cost(model)
    assert model.training
    assert all(module.training for module in model.modules())
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"cpu"}
    assert all(weight.equal(before[name]) for name, weight in model.state_dict().items())


@pytest.mark.parametrize("arch", ["transformer-tiny", "bahdanau", "hran"])
def test_a_model_without_data_costs_the_same(arch):
    """Estimates are made before there are weights."""
    with torch.device("meta"):
        empty = models.build(toy(arch), source_vocabulary=WORDS, target_vocabulary=WORDS)
    assert count_cost(empty) == count_cost(models.build(toy(arch), source_vocabulary=WORDS, target_vocabulary=WORDS))
