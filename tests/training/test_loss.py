"""The fused loss against PyTorch's own cross-entropy."""

import pytest
import torch
from torch import nn

from regard.training import loss as module
from regard.training.loss import smoothed_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_gradients_equal_pytorch(monkeypatch, smoothing, bias):
    monkeypatch.setattr(module, "CHUNK_ROWS", 4)  # three chunks, the last one short
    torch.manual_seed(1)
    output = nn.Linear(6, 11, bias=bias, dtype=torch.float64)
    states = torch.randn(10, 6, dtype=torch.float64, requires_grad=True)
    target = torch.randint(11, (10,))
    inputs = [states, *output.parameters()]

    expected = nn.functional.cross_entropy(output(states), target, label_smoothing=smoothing, reduction="sum")
    expected_gradients = torch.autograd.grad(expected, inputs)
    ours = smoothed_cross_entropy(output, states, target, smoothing)
    gradients = torch.autograd.grad(ours.smoothed * 3, inputs)

    assert ours.tokens == 10
    torch.testing.assert_close(ours.smoothed, expected)
    torch.testing.assert_close(ours.plain, nn.functional.cross_entropy(output(states), target, reduction="sum"))
    for ours_one, expected_one in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(ours_one, 3 * expected_one)


def test_without_gradients_it_gives_the_same_loss():
    torch.manual_seed(1)
    output, states, target = nn.Linear(6, 11), torch.randn(10, 6), torch.randint(11, (10,))
    with torch.no_grad():
        quiet = smoothed_cross_entropy(output, states, target, 0.1)
    assert not quiet.smoothed.requires_grad
    torch.testing.assert_close(quiet.smoothed, smoothed_cross_entropy(output, states, target, 0.1).smoothed.detach())


def test_large_scores_do_not_overflow():
    output = nn.Linear(1, 3, bias=False)
    with torch.no_grad():
        output.weight.copy_(torch.tensor([[1000.0], [0.0], [-1000.0]]))
    loss = smoothed_cross_entropy(output, torch.ones(1, 1), torch.tensor([0]), 0.0)
    assert loss.smoothed.item() == 0.0


def test_agreement_is_r_drop(monkeypatch):
    """Liang et al. 2021: cross-entropy of both passes plus alpha / 2 (KL(p, q) + KL(q, p))."""
    monkeypatch.setattr(module, "CHUNK_ROWS", 6)
    torch.manual_seed(1)
    output = nn.Linear(6, 11, dtype=torch.float64)
    states = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    target = torch.randint(11, (10,)).repeat(2)
    inputs = [states, *output.parameters()]

    log_p, log_q = output(states).log_softmax(-1).chunk(2)
    divergence = (log_p.exp() * (log_p - log_q)).sum() + (log_q.exp() * (log_q - log_p)).sum()
    cross_entropy = nn.functional.cross_entropy(output(states), target, label_smoothing=0.1, reduction="sum")
    expected = cross_entropy + 5.0 / 2 * divergence
    ours = smoothed_cross_entropy(output, states, target, 0.1, agreement=5.0)

    torch.testing.assert_close(ours.smoothed, expected)
    gradients = torch.autograd.grad(ours.smoothed, inputs)
    for ours_one, expected_one in zip(gradients, torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(ours_one, expected_one)
