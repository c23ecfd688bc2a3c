"""Cross-entropy with label smoothing and R-Drop, computed in chunks from the decoder's last hidden states.

The logits are the largest tensor of a training step: 4,096 tokens by 8,000 words are 131 MB, and autograd would keep
several copies. Here they are computed in chunks of a few hundred rows, and the gradient of a chunk is computed while it
is still in the processor's cache. The whole matrix of logits never exists, and nothing is computed twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.layers.auxiliary import Statistics

CHUNK_ROWS = 512

Measures = Mapping[str, tuple[float, float]]
"""Further numbers about a batch, by name: a sum, and the number of its terms. The logs show their means."""


class Loss(NamedTuple):
    """The loss of a batch, summed over its target tokens; divide by `tokens`, their number, for the mean."""

    smoothed: Tensor
    """The loss that is minimized, with label smoothing and R-Drop."""
    plain: Tensor
    """Negative log-likelihood of the reference, without smoothing and without a gradient."""
    tokens: int
    measures: Measures = MappingProxyType({})
    """Numbers for the logs, e.g. the rewards of sampled outputs."""
    statistics: Mapping[str, Statistics] = {}
    """Numbers of layers for the logs, by the name of the layer."""


def smoothed_cross_entropy(
    output: nn.Linear, states_ND: Tensor, target_N: Tensor, smoothing: float, agreement: float = 0.0
) -> Loss:
    """Loss of predicting the tokens `target_N` from the last hidden states `states_ND` by the output layer `output`.

    With `smoothing` e the target distribution is (1 - e) one-hot + e uniform. With `agreement` above 0 (R-Drop; Liang
    et al. 2021), the caller must pass every token twice, computed with two dropout masks: first all tokens, then all
    again. Then agreement / 2 * (KL(p, q) + KL(q, p)) is added, where p and q are the two predictions for a token.
    """
    arguments = (states_ND, output.weight, output.bias, target_N, smoothing, agreement)
    if torch.is_grad_enabled():
        smoothed, plain = _Fused.apply(*arguments)  # type: ignore[no-untyped-call]
    else:
        smoothed, plain, *_ = _sum_chunks(*arguments, gradients=False)
    return Loss(smoothed, plain, target_N.numel())


def perplexity(loss: float) -> float:
    """exp(`loss`), where `loss` is a mean negative log-likelihood per token; at most exp(700)."""
    return math.exp(min(loss, 700.0))  # a larger loss would give infinity


def token_log_probs(output: nn.Linear, states_ND: Tensor, target_N: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probabilities [N] of the tokens `target_N`, given the last hidden states, with gradients.

    The logits are divided by `temperature`. Unlike in `smoothed_cross_entropy`, the weight of each token may depend on
    all results; so the logits of a chunk are computed again in the backward pass.
    """
    arguments = (states_ND, output.weight, output.bias, target_N, temperature)
    return _LogProbs.apply(*arguments)  # type: ignore[no-untyped-call]


def _sum_chunks(
    states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, smoothing: float, agreement: float,
    *, gradients: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """In chunks, compute smoothed and plain loss, summed over all tokens, and the gradients of the smoothed loss.

    The gradients are with respect to states, weight and bias; None without `gradients`. `agreement`: weight of R-Drop.
    """
    smoothed, plain = states_ND.new_zeros((), dtype=torch.float64), states_ND.new_zeros((), dtype=torch.float64)
    kind = _product_type(states_ND)
    weight, bias = weight_VD.to(kind), None if bias_V is None else bias_V.to(kind)
    grad_states = torch.empty_like(states_ND) if gradients else None
    grad_weight = torch.zeros_like(weight_VD) if gradients else None
    grad_bias = torch.zeros_like(bias_V) if gradients and bias_V is not None else None
    for rows in _chunks(len(states_ND), paired=agreement > 0):
        states = _take(states_ND, rows).to(kind)
        scores = nn.functional.linear(states, weight, bias).to(weight_VD.dtype)
        chunk_smoothed, chunk_plain = _turn_to_gradient(scores, _take(target_N, rows), smoothing, agreement)
        smoothed, plain = smoothed + chunk_smoothed, plain + chunk_plain
        if grad_states is not None and grad_weight is not None:
            grad_scores = scores.to(kind)
            for part, grad_part in zip(rows, grad_scores.chunk(len(rows)), strict=True):
                if grad_states.dtype == kind:
                    torch.mm(grad_part, weight, out=grad_states[part])
                else:
                    grad_states[part] = grad_part @ weight
            if grad_weight.dtype == kind:
                grad_weight.addmm_(grad_scores.t(), states)
            else:
                grad_weight += grad_scores.t() @ states
        if grad_bias is not None:
            grad_bias += scores.sum(0)
    return smoothed, plain, grad_states, grad_weight, grad_bias


def _product_type(states_ND: Tensor) -> torch.dtype:
    """The data type of matrix products with `states_ND`: that of autocast, if it is enabled."""
    device = states_ND.device.type
    mixed = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if mixed else states_ND.dtype


def _chunks(rows: int, paired: bool) -> Iterator[tuple[slice, ...]]:
    """Divide `rows` rows into chunks: yield a slice per chunk; if `paired`, the same slice of both halves."""
    half = rows // 2
    size = CHUNK_ROWS // 2 if paired else CHUNK_ROWS
    for start in range(0, half if paired else rows, size):
        end = min(start + size, half if paired else rows)
        yield (slice(start, end), slice(half + start, half + end)) if paired else (slice(start, end),)


def _take(x: Tensor, rows: tuple[slice, ...]) -> Tensor:
    return x[rows[0]] if len(rows) == 1 else torch.cat([x[part] for part in rows])


def _turn_to_gradient(scores_NV: Tensor, target_N: Tensor, smoothing: float, agreement: float) -> tuple[Tensor, Tensor]:
    """Return the smoothed and the plain loss of a chunk, each summed over its tokens.

    Overwrites the logits `scores_NV` with the gradient of the smoothed loss. `agreement`: weight of R-Drop.
    """
    mean_score = scores_NV.mean(-1)
    true_score = scores_NV.gather(1, target_N[:, None])[:, 0]
    top = scores_NV.amax(-1, keepdim=True)
    scores_NV.sub_(top)
    shifted = scores_NV.clone() if agreement else scores_NV
    scores_NV.exp_()
    total = scores_NV.sum(-1, keepdim=True)
    log_total = (total.log() + top)[:, 0]
    negative_log_likelihood = log_total - true_score
    loss = ((1 - smoothing) * negative_log_likelihood + smoothing * (log_total - mean_score)).sum(dtype=torch.float64)
    probabilities = scores_NV.div_(total)
    pull = None
    if agreement:
        divergence, pull = _disagreement(probabilities, shifted.sub_(total.log()))
        loss = loss + agreement / 2 * divergence
    gradient = probabilities
    if smoothing:
        gradient.sub_(smoothing / scores_NV.shape[1])
    gradient.scatter_add_(1, target_N[:, None], gradient.new_full((1, 1), smoothing - 1).expand(len(target_N), 1))
    if pull is not None:
        gradient.add_(pull, alpha=agreement / 2)
    return loss, negative_log_likelihood.sum(dtype=torch.float64)


def _disagreement(probabilities: Tensor, log_probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """KL(p, q) + KL(q, p) summed over all tokens, for R-Drop, and its gradient with respect to the logits.

    p is the first and q the second half of the rows of `probabilities`. With d = log p - log q the gradient with
    respect to the logits of p is p (d - KL(p, q)) + p - q; for the logits of q, exchange p and q.
    """
    p, q = probabilities.chunk(2)
    d = torch.sub(*log_probabilities.chunk(2))
    one, other = (p * d).sum(-1, keepdim=True), -(q * d).sum(-1, keepdim=True)
    gap = p - q
    pull = torch.cat([p * (d - one) + gap, q * (-d - other) - gap])
    return (one + other).sum(dtype=torch.float64), pull


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        smoothed, plain, *gradients = _sum_chunks(*arguments, gradients=True)
        context.save_for_backward(*gradients)
        context.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias = (None if grad is None else grad * outer[0].to(grad) for grad in context.saved_tensors)
        return states, weight, bias, None, None, None


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, target_N: Tensor, temperature: float
    ) -> Tensor:
        context.kind, context.temperature = _product_type(states_ND), temperature
        context.save_for_backward(states_ND, weight_VD, bias_V, target_N)
        log_prob_N = states_ND.new_empty(len(states_ND), dtype=weight_VD.dtype)
        for (rows,) in _chunks(len(states_ND), paired=False):
            log_probs = _chunk_log_probs(states_ND[rows], weight_VD, bias_V, context.kind, temperature)
            log_prob_N[rows] = log_probs.gather(1, target_N[rows, None])[:, 0]
        return log_prob_N

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        states_ND, weight_VD, bias_V, target_N = context.saved_tensors
        weight = weight_VD.to(context.kind)
        grad_states, grad_weight = torch.empty_like(states_ND), torch.zeros_like(weight_VD)
        grad_bias = None if bias_V is None else torch.zeros_like(bias_V)
        for (rows,) in _chunks(len(states_ND), paired=False):
            states, temperature = states_ND[rows], context.temperature
            grad_NV = _chunk_log_probs(states, weight_VD, bias_V, context.kind, temperature).exp_().neg_()
            grad_NV.scatter_add_(1, target_N[rows, None], torch.ones_like(grad_NV[:, :1]))
            grad_NV.mul_(outer[0][rows, None] / temperature)
            grad_scores = grad_NV.to(context.kind)
            grad_states[rows] = (grad_scores @ weight).to(grad_states)
            grad_weight += grad_scores.t() @ states.to(context.kind)
            if grad_bias is not None:
                grad_bias += grad_NV.sum(0)
        return grad_states, grad_weight, grad_bias, None, None


def _chunk_log_probs(
    states: Tensor, weight_VD: Tensor, bias_V: Tensor | None, kind: torch.dtype, temperature: float
) -> Tensor:
    bias = None if bias_V is None else bias_V.to(kind)
    scores = nn.functional.linear(states.to(kind), weight_VD.to(kind), bias).to(weight_VD.dtype)
    return scores.div_(temperature).log_softmax(-1)
