"""Gated recurrent units over many sequences of different lengths, without a step on padding.

The sentences of some documents are a few words long or fifty. Sorted by length, longest first, those that still go on
at step t are the first rows, so their tokens lie one step after the other without a gap: [P, D], P tokens in all. A
step is then a product of a few hundred rows, and what autograd would do for each of its dozen operations is written out
here: a step keeps six numbers a state, and the gradient of the recurrent weights is one product over all tokens.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.recurrent import GRU


class Packing:
    """How the real tokens of padded sequences [N, S] lie when they are packed. Padding stands at the ends."""

    def __init__(self, mask_NS: Tensor):
        rows, steps = mask_NS.shape
        self.shape = (rows, steps)
        order_N = mask_NS.sum(1).argsort(descending=True, stable=True)
        step_P, rank_P = mask_NS[order_N].t().nonzero(as_tuple=True)
        self.row_P = order_N[rank_P]
        """The sequence that each token belongs to."""
        self.place_P = self.row_P * steps + step_P
        """Its place in the padded sequences, laid out flat."""
        self.sizes = [size for size in mask_NS.sum(0).tolist() if size]
        """Sequences that are still there, step by step."""

    def pack(self, x_NSD: Tensor) -> Tensor:
        """The real tokens alone, [P, ...]."""
        return x_NSD.flatten(0, 1).index_select(0, self.place_P.to(x_NSD.device))

    def unpack(self, x_PD: Tensor) -> Tensor:
        """Padded sequences [N, S, D], zero where nothing is real."""
        rows, steps = self.shape
        flat = x_PD.new_zeros(rows * steps, x_PD.shape[-1]).index_copy(0, self.place_P.to(x_PD.device), x_PD)
        return flat.unflatten(0, (rows, steps))


class PackedGRU(nn.Module):
    """Two cells over packed sequences, from both ends; their states stand side by side."""

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.forwards, self.backwards = GRU(inputs, width), GRU(inputs, width)

    def forward(self, x_PD: Tensor, sizes: list[int]) -> Tensor:
        """States [P, 2 D] of every token."""
        return torch.cat(
            [run_packed(self.forwards, x_PD, sizes), run_packed(self.backwards, x_PD, sizes, backward=True)], dim=-1
        )


def run_packed(cell: GRU, x_PD: Tensor, sizes: list[int], *, backward: bool = False) -> Tensor:
    """Hidden states [P, D] of a cell that starts from zeros in every sequence, at its first token or at its last."""
    states_PD: Tensor = _Run.apply(  # type: ignore[no-untyped-call]
        cell.read(x_PD), cell.recur.weight, cell.candidate_bias, sizes, backward
    )
    return states_PD


def _steps(sizes: list[int], backward: bool) -> list[slice]:
    """Where the tokens of each step lie, in the order in which the cell meets them."""
    steps = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    return steps[::-1] if backward else steps


class _Run(torch.autograd.Function):
    """One step is h' = n + z (h - n), with reset and update gates r, z = s(read + U h) and n = tanh(read + r m).

    m = U h + b is what the cell recalls. Going forwards the rows of a step are the first of those of the step before;
    going backwards, rows that were not there yet start from zeros.
    """

    @staticmethod
    def forward(
        context: Any, read_PG: Tensor, recur_GD: Tensor, bias_D: Tensor, sizes: list[int], backward: bool
    ) -> Tensor:
        tokens, width = read_PG.shape[0], recur_GD.shape[1]
        recur_GD = recur_GD.to(read_PG.dtype)  # under autocast what was read is short
        before_PD, after_PD = read_PG.new_empty(tokens, width), read_PG.new_empty(tokens, width)
        gates_PG, recalled_PD = read_PG.clone(), read_PG.new_empty(tokens, width)
        state_ND = read_PG.new_zeros(sizes[0], width)
        for step in _steps(sizes, backward):
            rows = state_ND[: step.stop - step.start]
            before_PD[step] = rows
            product = rows @ recur_GD.t()
            gates, recalled = gates_PG[step], recalled_PD[step]
            both, candidate = gates[:, : 2 * width], gates[:, 2 * width :]
            both.add_(product[:, : 2 * width]).sigmoid_()
            torch.add(product[:, 2 * width :], bias_D, out=recalled)
            candidate.addcmul_(both[:, :width], recalled).tanh_()
            torch.lerp(candidate, rows, both[:, width:], out=after_PD[step])
            rows.copy_(after_PD[step])
        context.save_for_backward(recur_GD, before_PD, gates_PG, recalled_PD)
        context.sizes, context.backwards = sizes, backward
        return after_PD

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        recur_GD, before_PD, gates_PG, recalled_PD = context.saved_tensors
        width = recur_GD.shape[1]
        reset_PD, update_PD, candidate_PD = gates_PG.split(width, dim=1)
        # What does not depend on the gradient that a step hands to the one before it, for all steps at once.
        slope_PG = gates_PG.new_empty(gates_PG.shape)
        slope_reset, slope_update, slope_candidate = slope_PG.split(width, dim=1)
        torch.mul(1 - update_PD, 1 - candidate_PD * candidate_PD, out=slope_candidate)
        torch.mul(before_PD - candidate_PD, update_PD * (1 - update_PD), out=slope_update)
        torch.mul(slope_candidate, recalled_PD * (reset_PD * (1 - reset_PD)), out=slope_reset)
        grad_read, grad_recur = torch.empty_like(slope_PG), torch.empty_like(slope_PG)
        carry_ND = slope_PG.new_zeros(context.sizes[0], width)
        for step in reversed(_steps(context.sizes, context.backwards)):
            rows = carry_ND[: step.stop - step.start]
            rows.add_(gradients[0][step])
            torch.mul(slope_PG[step].unflatten(1, (3, width)), rows[:, None], out=grad_read[step].view(-1, 3, width))
            through = grad_recur[step]
            through[:, : 2 * width] = grad_read[step][:, : 2 * width]
            torch.mul(grad_read[step][:, 2 * width :], reset_PD[step], out=through[:, 2 * width :])
            rows.mul_(update_PD[step]).addmm_(through, recur_GD)
        grad_bias = grad_recur[:, 2 * width :].sum(0)
        return grad_read, grad_recur.t() @ before_PD, grad_bias, None, None
