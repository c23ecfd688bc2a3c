"""Convolutions as matrix products beside PyTorch's own, one step at a time, and weight normalization."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from regard.layers.convolution import WeightNormLinear, next_window, no_inputs, windows
from tests.toys import close

ROWS, LENGTH, WIDTH, OUT = 2, 11, 3, 4

each_shape = pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (5, 1), (3, 4)])


def matrix(kernel: int) -> Tensor:
    return torch.randn(OUT, kernel * WIDTH)


@each_shape
@pytest.mark.parametrize("causal", [True, False])
def test_a_convolution_is_a_product_with_windows(kernel: int, dilation: int, causal: bool) -> None:
    x_BTD, weight = torch.randn(ROWS, LENGTH, WIDTH), matrix(kernel)
    reach = (kernel - 1) * dilation
    padded = F.pad(x_BTD.mT, (reach, 0) if causal else (reach // 2, reach // 2))
    expected = F.conv1d(padded, weight.view(OUT, kernel, WIDTH).mT, dilation=dilation).mT
    close(F.linear(windows(x_BTD, kernel, dilation, causal=causal), weight), expected)


@each_shape
def test_steps_see_the_windows_of_the_whole(kernel: int, dilation: int) -> None:
    x_BTD = torch.randn(ROWS, LENGTH, WIDTH)
    past_BWRD, seen = no_inputs(ROWS, kernel, dilation, matrix(kernel)), []
    for x_BD in x_BTD.unbind(1):
        window_BWN, past_BWRD = next_window(x_BD.unsqueeze(1), past_BWRD, dilation)
        seen.append(window_BWN)
        assert past_BWRD.shape[2] == (kernel - 1) * dilation  # never more
    close(torch.cat(seen, dim=1), windows(x_BTD, kernel, dilation, causal=True), 0)


def test_weight_normalization_is_pytorchs() -> None:
    ours = WeightNormLinear(5, 4)
    with torch.no_grad():
        ours.gain.mul_(torch.rand(4) + 0.5)
    theirs = weight_norm(nn.Linear(5, 4))
    gain, rows = theirs.parametrizations.weight.original0, theirs.parametrizations.weight.original1
    with torch.no_grad():
        gain.copy_(ours.gain.unsqueeze(1))
        rows.copy_(ours.weight)
        theirs.bias.copy_(ours.bias)
    x, wanted = torch.randn(7, 5), torch.randn(7, 4)
    for layer in (ours, theirs):
        (layer(x) * wanted).sum().backward()
    close(ours(x), theirs(x))
    assert ours.gain.grad is not None
    assert ours.weight.grad is not None
    close(ours.gain.grad, gain.grad.squeeze(1))
    close(ours.weight.grad, rows.grad)


@pytest.mark.parametrize("variance", [0.5, 4.0])
def test_a_layer_starts_with_the_given_variance_and_as_if_not_normalized(variance: float) -> None:
    layer = WeightNormLinear(300, 400, variance)
    x = torch.randn(500, 300)
    assert layer(x).var().item() == pytest.approx(variance, rel=0.05)
    close(layer(x), x @ layer.weight.t(), 1e-4)
