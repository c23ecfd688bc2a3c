"""Arithmetic counted from the architecture against what PyTorch counts while it runs."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from tests.toys import MARKER, toy
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.config import PRESETS
from regard.models import build_model
from regard.training.flops import count_cost

ROWS, SOURCE, TARGET, WORDS = 3, 7, 5, 50


@pytest.mark.parametrize("arch", PRESETS)
def test_forward_equals_pytorchs_count(arch):
    settings = dataclasses.replace(toy(arch), dropout=0.0)
    model = build_model(settings, WORDS, WORDS, joint=True).eval()
    source = SimpleNamespace(
        ids_BS=torch.randint(MARKER + 1, WORDS, (ROWS, SOURCE)), mask_BS=torch.ones(ROWS, SOURCE, dtype=torch.bool)
    )
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:  # the fused kernel is not counted
        model(source, torch.randint(3, WORDS, (ROWS, TARGET)))
    assert count_cost(model).forward(ROWS, SOURCE, TARGET) == pytest.approx(counter.get_total_flops(), rel=1e-9)
