"""Cross-entropy with label smoothing, straight from the decoder's last states.

The scores over the vocabulary are the largest tensor of a training step: 4,096 tokens by 8,000 words are 131 MB, and
autograd would keep several of them. Here they are computed a few hundred rows at a time; each chunk's gradient is
formed while the chunk is still in the cache, and no matrix of all scores ever exists. Nothing is computed twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

CHUNK_ROWS = 512


class Loss(NamedTuple):
    """Sums over the tokens of a batch; divide by `tokens` for the mean."""

    smoothed: Tensor
    """What is minimised."""
    plain: Tensor
    """Negative log-likelihood of the reference, without smoothing and without a gradient."""
    tokens: int


def smoothed_cross_entropy(output: nn.Linear, states_ND: Tensor, target_N: Tensor, smoothing: float) -> Loss:
    """Loss of predicting `target_N` from `states_ND` through the output map: (1 - e) one-hot + e uniform."""
    if torch.is_grad_enabled():
        smoothed, plain = _Fused.apply(states_ND, output.weight, output.bias, target_N, smoothing)  # type: ignore[no-untyped-call]
    else:
        smoothed, plain, *_ = _chunked(states_ND, output.weight, output.bias, target_N, smoothing, False)
    return Loss(smoothed, plain, target_N.numel())


def _chunked(
    states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, smoothing: float, gradients: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The two losses and, if asked for, their gradients with respect to states, weight and bias."""
    smoothed, plain = states_ND.new_zeros((), dtype=torch.float64), states_ND.new_zeros((), dtype=torch.float64)
    grad_states = torch.empty_like(states_ND) if gradients else None
    grad_weight = torch.zeros_like(weight_VD) if gradients else None
    grad_bias = torch.zeros_like(bias_V) if gradients and bias_V is not None else None
    words = weight_VD.shape[0]
    for rows in range(0, states_ND.shape[0], CHUNK_ROWS):
        states, target = states_ND[rows : rows + CHUNK_ROWS], target_N[rows : rows + CHUNK_ROWS, None]
        scores = nn.functional.linear(states, weight_VD, bias_V)
        mean_score = scores.mean(-1)
        true_score = scores.gather(1, target)[:, 0]
        top = scores.amax(-1, keepdim=True)
        scores.sub_(top).exp_()
        total = scores.sum(-1, keepdim=True)
        log_total = total.log()[:, 0] + top[:, 0]
        surprise = log_total - true_score
        plain += surprise.sum(dtype=torch.float64)
        smoothed += ((1 - smoothing) * surprise + smoothing * (log_total - mean_score)).sum(dtype=torch.float64)
        if grad_states is not None and grad_weight is not None:
            grad_scores = scores.div_(total)
            if smoothing:
                grad_scores.sub_(smoothing / words)
            grad_scores.scatter_add_(1, target, grad_scores.new_full((1, 1), smoothing - 1).expand_as(target))
            torch.mm(grad_scores, weight_VD, out=grad_states[rows : rows + CHUNK_ROWS])
            grad_weight.addmm_(grad_scores.t(), states)
            if grad_bias is not None:
                grad_bias += grad_scores.sum(0)
    return smoothed, plain, grad_states, grad_weight, grad_bias


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        smoothed, plain, *gradients = _chunked(states_ND, weight_VD, bias_V, target_N, smoothing, True)
        context.save_for_backward(*gradients)
        context.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        scale = outer[0].to(torch.float32) if context.saved_tensors[0].dtype == torch.float32 else outer[0]
        states, weight, bias = (None if grad is None else grad * scale for grad in context.saved_tensors)
        return states, weight, bias, None, None
