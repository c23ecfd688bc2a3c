"""Mixture of experts: "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", Shazeer et al.
2017. Only k of E feed-forward networks (experts) compute each token; a gate chooses them.

The noisy top-k gate is the paper's: equation 3 is the softmax, 4 the logits with noise, 5 the choice of the k largest.
Noise is added in training only, and is drawn like dropout masks, so that runs resume exactly. Two losses keep the
experts equally busy: the squared coefficient of variation of their importance (sum of gate values, equations 6 and 7)
and of their load (a smooth estimate of the number of tokens, appendix A).

In training, an expert computes at most `expert_capacity` times its equal share of the tokens; further tokens skip it.
In evaluation no token is dropped, so the result of a sentence does not depend on its batch. Padding takes no part.

Tokens are sorted by expert, so that each expert is two matrix products over its own rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.auxiliary import add_auxiliary, global_sum, rows_before, sum_over_rows
from regard.layers.dropout import draw_for_rows
from regard.layers.init import glorot

SMALLEST_NOISE = 1e-6  # standard deviation, so that the load is finite


class ExpertOptions(Protocol):
    """Settings of a layer with experts; models/transformer_settings.py describes them."""

    @property
    def experts(self) -> int: ...
    @property
    def active_experts(self) -> int: ...
    @property
    def expert_capacity(self) -> float: ...
    @property
    def importance_weight(self) -> float: ...
    @property
    def load_weight(self) -> float: ...


def activate(inner: Tensor, activation: str) -> Tensor:
    """The activation function of a feed-forward network. "swiglu" halves the width of its input.

    The input of "relu" is overwritten.
    """
    if activation == "swiglu":
        gate, inner = inner.chunk(2, dim=-1)
        return F.silu(gate) * inner
    if activation == "relu":
        return F.relu(inner, inplace=True)  # its gradient needs only the output
    return F.gelu(inner) if activation == "gelu" else F.silu(inner)


class Choice(NamedTuple):
    """What the gate decides for N tokens: k experts each, with their weights; and what the losses need."""

    gate_NK: Tensor
    """Weights of the chosen experts; they sum to 1."""
    expert_NK: Tensor
    clean_NE: Tensor
    """Logits without noise, x W_g."""
    noise_NE: Tensor | None
    """Standard deviation of the noise, Softplus(x W_noise); None without noise."""
    top_NK: Tensor
    """In training the k + 1 largest logits with noise (k if k = E), else the k largest, in descending order."""


class NoisyTopKGate(nn.Module):
    """The gate of equations 3 to 5. Its matrices are zero at first, so that noise alone chooses (appendix A)."""

    def __init__(self, width: int, experts: int, active: int):
        super().__init__()
        self.active = active
        self.weight = nn.Parameter(torch.zeros(experts, width))  # no nn.Linear: Muon is for hidden layers
        self.noise = nn.Parameter(torch.zeros(experts, width))

    def forward(self, x_BTD: Tensor) -> Choice:
        """Choose experts for each token of B rows; computed in float32, also under autocast."""
        device = x_BTD.device.type
        with torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext():
            x_BTD = x_BTD.to(self.weight.dtype)
            clean_BTE = F.linear(x_BTD, self.weight)
            logits_NE = clean_NE = clean_BTE.flatten(0, 1)
            noise_NE = None
            if self.training:
                noise_NE = F.softplus(F.linear(x_BTD, self.noise)).flatten(0, 1).clamp_min(SMALLEST_NOISE)
                normal_BTE = draw_for_rows(
                    clean_BTE.shape, 0, lambda shape: torch.randn(shape, device=x_BTD.device, dtype=x_BTD.dtype)
                )
                logits_NE = clean_NE + normal_BTE.flatten(0, 1) * noise_NE
            top_NK, expert_NK = logits_NE.topk(min(self.active + self.training, logits_NE.shape[1]), dim=1)
            gate_NK = top_NK[:, : self.active].softmax(dim=1)
        return Choice(gate_NK, expert_NK[:, : self.active], clean_NE, noise_NE, top_NK)


def load(choice: Choice, chosen_NE: Tensor) -> Tensor:
    """For each token and expert, the probability that the token chooses the expert with new noise (equation 9).

    `chosen_NE` is True where the expert is chosen. The k-th largest logit without that of the expert itself is the
    (k + 1)-th largest of all if the expert is chosen, else the k-th largest.
    """
    active = choice.expert_NK.shape[1]
    if choice.noise_NE is None or choice.top_NK.shape[1] == active:  # no noise, or all experts are always chosen
        return chosen_NE.to(choice.gate_NK.dtype)
    without_it_NE = torch.where(chosen_NE, choice.top_NK[:, active, None], choice.top_NK[:, active - 1, None])
    return torch.special.ndtr((choice.clean_NE - without_it_NE) / choice.noise_NE)


def squared_variation(x_E: Tensor) -> Tensor:
    """The squared coefficient of variation: variance divided by the squared mean."""
    return x_E.var(unbiased=False) / (x_E.mean().square() + 1e-10)


class _Move(torch.autograd.Function):
    """Select rows. `back` selects the rows of the gradient, K for each row of the input, which are summed.

    The gradient of `index_select` adds row after row and is slow; every move of tokens can be undone by a selection.
    """

    @staticmethod
    def forward(context: Any, x_ND: Tensor, index_P: Tensor, back_NK: Tensor) -> Tensor:
        context.save_for_backward(back_NK)
        return x_ND.index_select(0, index_P)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (back_NK,) = context.saved_tensors
        rows_ND = gradients[0].index_select(0, back_NK.flatten())
        return rows_ND if back_NK.shape[1] == 1 else rows_ND.unflatten(0, back_NK.shape).sum(1), None, None


def move(x_ND: Tensor, index_P: Tensor, back_NK: Tensor, *, training: bool = True) -> Tensor:
    """`x_ND.index_select(0, index_P)`; row n of the input stands in the rows `back_NK[n]` of the result.

    `training`: the gradient is computed faster, but not for `torch.func` and not twice.
    """
    if training and x_ND.requires_grad:
        return _Move.apply(x_ND, index_P, back_NK)  # type: ignore[no-untyped-call]
    return x_ND.index_select(0, index_P)


class Plan(NamedTuple):
    """The order in which P tokens are computed, sorted by expert, before one row that stands for "no expert"."""

    sizes: list[int]
    """Number of tokens of each expert."""
    slot_P: Tensor
    """For each row, its index in the flattened choices [N, K]. The last row is 0 and has no meaning."""
    row_NK: Tensor
    """For each choice, its row; the last row for padding and dropped tokens."""


def plan_rows(expert_NK: Tensor, kept_NK: Tensor | None, experts: int) -> Plan:
    """Sort the choices by expert. `kept_NK` is False for choices that are not computed."""
    choices = expert_NK.numel()
    if expert_NK.is_meta:  # without data, the experts are equally busy
        sizes = [choices // experts + (expert < choices % experts) for expert in range(experts)]
        return Plan(sizes, expert_NK.new_empty(choices + 1), torch.empty_like(expert_NK))
    key_S = expert_NK.flatten()
    if kept_NK is not None:
        key_S = key_S.masked_fill(~kept_NK.flatten(), experts)
    slot_S = key_S.argsort(stable=True)
    sizes = torch.bincount(key_S, minlength=experts)[:experts].tolist()
    rows = sum(sizes)
    row_S = torch.full_like(key_S, rows)
    row_S[slot_S[:rows]] = torch.arange(rows, device=key_S.device)
    return Plan(sizes, torch.cat([slot_S[:rows], slot_S.new_zeros(1)]), row_S.view_as(expert_NK))


Exchange = Callable[[Tensor, Sequence[int], Callable[[Tensor, Sequence[int]], Tensor]], Tensor]
"""exchange(x_PD, sizes, compute): sends rows to the processes that own their experts, and the results back."""


class MixtureOfExperts(nn.Module):
    """Feed-forward networks of which a gate chooses `options.active_experts` for each token.

    Every matrix has the matrices of all experts, one below the other. `name` is the name in the logs.
    """

    def __init__(self, options: ExpertOptions, width: int, inner: int, activation: str, name: str):
        super().__init__()
        self.experts, self.active = options.experts, options.active_experts
        self.activation, self.name = activation, name
        self.capacity = options.expert_capacity
        self.importance_weight, self.load_weight = options.importance_weight, options.load_weight
        self.gate = NoisyTopKGate(width, self.experts, self.active)
        parts = 2 if activation == "swiglu" else 1
        self.up = glorot(nn.Linear(width, self.experts * parts * inner), self.experts * parts)
        self.down = glorot(nn.Linear(inner, self.experts * width), self.experts)
        self.exchange: Exchange | None = None
        """Set if the experts are divided among processes."""

    @property
    def inactive_parameters(self) -> int:
        """Number of parameters that take no part in the computation of a token."""
        of_experts = sum(parameter.numel() for layer in (self.up, self.down) for parameter in layer.parameters())
        return of_experts // self.experts * (self.experts - self.active)

    def forward(self, x_BTD: Tensor, mask_BT: Tensor | None = None) -> Tensor:
        """The weighted sum of the chosen experts for each token of B rows; zero where the mask is False (padding)."""
        choice = self.gate(x_BTD)
        kept_NK = None
        if mask_BT is not None and not bool(mask_BT.all()):
            kept_NK = mask_BT.flatten()[:, None].expand(choice.expert_NK.shape).to(x_BTD.device)
        if self.training and not x_BTD.is_meta:
            kept_NK = self._balance(choice, kept_NK, x_BTD.shape[0])
        plan = plan_rows(choice.expert_NK, kept_NK, self.experts)
        x_ND = x_BTD.flatten(0, 1)
        x_PD = move(x_ND, plan.slot_P // self.active, plan.row_NK, training=self.training)[:-1]
        if self.exchange is None:
            outputs = self.outputs(x_PD, plan.sizes)
        else:
            outputs = [self.exchange(x_PD, plan.sizes, lambda *rows: torch.cat(self.outputs(*rows)))]
        y_PD = torch.cat([*outputs, outputs[0].new_zeros(1, x_ND.shape[1])])
        weight_NK = choice.gate_NK.to(y_PD.dtype)
        y_SD = move(y_PD, plan.row_NK.flatten(), plan.slot_P[:, None], training=self.training)
        return (y_SD.unflatten(0, plan.row_NK.shape) * weight_NK[..., None]).sum(1).view_as(x_BTD)

    def outputs(self, x_PD: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """The outputs of experts on rows that are sorted by expert: `sizes[e]` rows of expert e."""
        layers = [
            (local(layer.weight).unflatten(0, (len(sizes), -1)), local(layer.bias).unflatten(0, (len(sizes), -1)))
            for layer in (self.up, self.down)
        ]
        weights = zip(*(part.unbind() for layer in layers for part in layer), strict=True)
        # With gradients, an expert without rows computes too: its weights get a gradient of zero in every process.
        found = [
            F.linear(activate(F.linear(rows, up, up_bias), self.activation), down, down_bias)
            for rows, (up, up_bias, down, down_bias) in zip(x_PD.split(list(sizes)), weights, strict=True)
            if len(rows) or torch.is_grad_enabled()
        ]
        return found or [x_PD]

    def _balance(self, choice: Choice, real_NK: Tensor | None, rows: int) -> Tensor | None:
        """Add the balance losses and the statistics of this batch; return False for choices that are not computed.

        `real_NK` is False for padding. If processes share the rows of the batch, all sums are over the whole batch.
        """
        gate_NK, expert_NK = choice.gate_NK, choice.expert_NK
        shape = (len(expert_NK), self.experts)
        padding_NK, real_NK = real_NK, torch.ones_like(expert_NK, dtype=torch.bool) if real_NK is None else real_NK
        chosen_NE = torch.zeros(shape, dtype=torch.bool, device=gate_NK.device).scatter(1, expert_NK, real_NK)
        gates_NE = gate_NK.new_zeros(shape).scatter(1, expert_NK, gate_NK * real_NK)
        importance_E = global_sum(gates_NE.sum(0))
        load_E = global_sum((load(choice, chosen_NE) * real_NK[:, :1]).sum(0))
        loss = self.importance_weight * squared_variation(importance_E)
        loss = loss + self.load_weight * squared_variation(load_E)
        count_E = sum_over_rows(chosen_NE.sum(0, dtype=gate_NK.dtype))
        tokens = float(count_E.sum()) / self.active
        most = math.inf
        if 0 < self.capacity * self.active < self.experts:
            most = max(1, math.ceil(self.capacity * tokens * self.active / self.experts))
        dropped = float((count_E - most).clamp_min(0).sum()) / max(tokens * self.active, 1)
        shares = ((x_E / x_E.sum().clamp_min(1e-10)).tolist() for x_E in (importance_E.detach(), count_E))
        names = dict(zip(("importance", "load"), ([round(share, 4) for share in part] for part in shares), strict=True))
        add_auxiliary(self.name, loss, {**names, "dropped": round(dropped, 4)})
        if not dropped:
            return padding_NK
        counts_BE = chosen_NE.unflatten(0, (rows, -1)).sum(1)
        offset_BE = rows_before(counts_BE) - (counts_BE.cumsum(0) - counts_BE)
        place_NE = chosen_NE.cumsum(0) - 1 + offset_BE.repeat_interleave(len(expert_NK) // rows, dim=0)
        return real_NK & (place_NE.gather(1, expert_NK) < most)


def local(weight: Tensor) -> Tensor:
    """The part of a weight that this process has, if the experts are divided among processes; else the weight."""
    return weight.to_local() if hasattr(weight, "to_local") else weight
