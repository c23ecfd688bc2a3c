"""ByteNet beside the sentences of its paper (Kalchbrenner et al. 2016)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard import models
from regard.errors import SettingsError
from regard.layers.hooks import trace_states
from regard.models import settings_of
from regard.models.bytenet import ByteNet
from tests.toys import build, check_gradients, close, sentences, step_operations, tokens, toy, walk


def small(**changes: Any) -> ByteNet:
    model = build(toy("bytenet", **changes))
    assert isinstance(model, ByteNet)
    return model


def test_gradients_are_those_of_finite_differences() -> None:
    check_gradients(small(encoder_layers=2, decoder_layers=2, width=6))


@torch.no_grad()
@pytest.mark.parametrize(("ratio", "extra", "columns"), [(1.2, 0, 12), (1.0, 0, 10), (1.1, 0, 11), (1.25, 3, 16)])
def test_the_source_is_extended_to_a_linear_function_of_its_length(ratio: float, extra: int, columns: int) -> None:
    """Section 3.2: |t'| = a |s| + b, here of 10 tokens, rounded up."""
    memory = small(length_ratio=ratio, length_extra=extra).encode(sentences([10, 4]))
    assert memory.states_BSD.shape[1] == columns
    assert memory.mask_BS.sum(1).tolist()[0] == columns


@torch.no_grad()
def test_the_decoder_goes_on_beyond_the_columns() -> None:
    """Dynamic unfolding, section 3.2: a target may be longer than |t'|; it reads zeros there, also in a batch."""
    model, target_BT = small(), tokens(1, 20)
    short = sentences([4])  # five columns
    scores_BTV = model(short, target_BT)
    columns_BCD = model.encode(short).states_BSD
    longer = F.pad(columns_BCD, (0, 0, 0, 20 - columns_BCD.shape[1]))
    x_BTD = model.embed(target_BT) + longer
    for block in model.decoder:
        x_BTD = block(x_BTD)
    close(scores_BTV, model.output(F.relu(model.last(F.relu(model.norm(x_BTD))))))
    close(walk(model, short, target_BT[:, None])[:, 0], scores_BTV)


@torch.no_grad()
@pytest.mark.parametrize("masked", [True, False])
def test_a_block_is_figure_3_of_the_paper(masked: bool) -> None:
    model = small()
    block = (model.decoder if masked else model.encoder.blocks)[2]
    assert block.dilation == 4
    x_BTD = torch.randn(2, 15, 20)
    inner = block.down(F.relu(block.norm_down(x_BTD)))
    inner = F.relu(block.norm_conv(inner)).mT
    padded = F.pad(inner, (8, 0) if masked else (4, 4))
    inner = F.conv1d(padded, block.conv.weight.view(10, 3, 10).mT, block.conv.bias, dilation=4).mT
    close(block(x_BTD), x_BTD + block.up(F.relu(block.norm_up(inner))))


def test_dilations_start_again() -> None:
    settings = dataclasses.replace(settings_of("bytenet"), width=4, encoder_layers=7)
    model = models.build(settings, source_vocabulary=9, target_vocabulary=9)
    assert isinstance(model, ByteNet)
    assert [block.dilation for block in model.encoder.blocks] == [1, 2, 4, 8, 16, 1, 2]


def test_the_receptive_field_is_that_of_the_dilations() -> None:
    """Section 3.4: with dilations 1, 2, 4 a masked decoder reads the 14 tokens before, the encoder 7 on both sides."""
    model = small(encoder_layers=3, decoder_layers=3)
    x_BTD = torch.randn(1, 40, 20, requires_grad=True)
    for blocks, first, last in ((model.encoder.blocks, 20 - 7, 20 + 7), (model.decoder, 20 - 14, 20)):
        y_BTD: Tensor = x_BTD
        for block in blocks:
            y_BTD = block(y_BTD)
        [gradient] = torch.autograd.grad(y_BTD[0, 20].sum(), x_BTD)
        reached = gradient[0].abs().sum(-1).nonzero().flatten()
        assert (int(reached.min()), int(reached.max())) == (first, last)


def test_the_papers_blocks_have_the_papers_size() -> None:
    """Section 4: 30 + 30 blocks, d = 800, kernels of 3; figure 3: from 2d to d, d to d, d to 2d. It gives no total."""
    settings = dataclasses.replace(settings_of("bytenet"), encoder_layers=30, decoder_layers=30, width=1600)
    with torch.device("meta"):
        model = models.build(settings, source_vocabulary=323, target_vocabulary=296)
    assert isinstance(model, ByteNet)
    blocks = [*model.encoder.blocks, *model.decoder]
    weights = sum(weight.numel() for block in blocks for weight in block.parameters() if weight.dim() == 2)
    assert weights == 60 * (2 * 1600 * 800 + 3 * 800**2)


def test_a_step_costs_the_same_at_every_length() -> None:
    assert len(set(step_operations(small(), sentences([6, 4]), (1, 2, 20, 60)))) == 1


def test_hooks_see_the_states_of_source_tokens_alone() -> None:
    model = small()
    with torch.no_grad(), trace_states(model) as tape:
        model(sentences([10, 4]), tokens(2, 5))
    assert all(states.shape[1] == (10 if "encoder" in name else 5) for name, states in tape.items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": 2}, "model.kernel must be an odd number, not 2"),
        ({"dilations": ()}, "model.dilations must not be empty"),
        ({"width": 5}, "width"),
        ({"length_ratio": 0.9}, "length_ratio"),
    ],
)
def test_impossible_settings_are_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        toy("bytenet", **changes)
