"""Packed recurrent units against PyTorch's own, and the gradient written by hand against the numerical one."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as example_budget
from hypothesis import strategies as st
from torch import nn

from regard.layers.rnn_cells import GRU, PackedGRU, PackedLayout, run_packed, unroll
from tests.toys import close

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=7)


def masks(sizes):
    return torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]


@given(lengths)
def test_packing_keeps_every_real_token_and_nothing_else(sizes):
    mask = masks(sizes)
    packing = PackedLayout(mask)
    x = torch.randn(*mask.shape, 3)
    packed = packing.pack(x)
    assert len(packed) == sum(sizes) == sum(packing.sizes)
    assert packing.sizes == sorted(packing.sizes, reverse=True)
    assert torch.equal(packing.unpack(packed), x * mask[..., None])
    assert torch.equal(packing.row_P.bincount(minlength=len(sizes)), torch.tensor(sizes))


@pytest.mark.parametrize("backward", [False, True])
@example_budget(max_examples=15)
@given(sizes=lengths)
def test_states_and_gradients_equal_those_of_the_loop(sizes, backward):
    mask, cell = masks(sizes), GRU(5, 4)
    nn.init.normal_(cell.candidate_bias)
    x = torch.randn(*mask.shape, 5, requires_grad=True)
    packing, graded = PackedLayout(mask), [x, *cell.parameters()]
    packed = packing.unpack(run_packed(cell, packing.pack(x), packing.sizes, backward=backward))
    looped, _ = unroll(cell, cell.input(x.transpose(0, 1)), cell.start(len(sizes)), mask.t(), backward=backward)
    looped = looped.transpose(0, 1) * mask[..., None]
    close(packed, looped)
    weigh = torch.randn_like(looped)
    ours, theirs = (torch.autograd.grad((states * weigh).sum(), graded) for states in (packed, looped))
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, 1e-4)


def test_the_gradient_is_the_numerical_one():
    mask = masks([4, 1, 3])
    packing, layer = PackedLayout(mask), PackedGRU(3, 2).double()
    x = torch.randn(8, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x, packing.sizes), [x])


def test_states_equal_those_of_pytorch():
    sizes, inputs, width = [5, 2, 7, 1], 6, 4
    mask, layer = masks(sizes), PackedGRU(inputs, width)
    theirs = nn.GRU(inputs, width, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for suffix, cell in (("", layer.forwards), ("_reverse", layer.backwards)):
            nn.init.normal_(cell.candidate_bias)
            getattr(theirs, f"weight_ih_l0{suffix}").copy_(cell.input.weight)
            getattr(theirs, f"weight_hh_l0{suffix}").copy_(cell.recurrent.weight)
            getattr(theirs, f"bias_ih_l0{suffix}").copy_(cell.input.bias)
            getattr(theirs, f"bias_hh_l0{suffix}").zero_()
            getattr(theirs, f"bias_hh_l0{suffix}")[2 * width :].copy_(cell.candidate_bias)
    x = torch.randn(*mask.shape, inputs)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(sizes), batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    packing = PackedLayout(mask)
    close(packing.unpack(layer(packing.pack(x), packing.sizes)), expected)


def test_half_precision_comes_near():
    mask = masks([6, 3])
    packing, layer, x = PackedLayout(mask), PackedGRU(8, 4), torch.randn(9, 8)
    expected = layer(x, packing.sizes)
    with torch.autocast("cpu", torch.bfloat16):
        short = layer(x, packing.sizes)
        short.float().sum().backward()
    close(short.float(), expected, 0.05)
    assert layer.forwards.recurrent.weight.grad.dtype == torch.float32
