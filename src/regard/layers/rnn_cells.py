"""LSTM and GRU cells, with an optional second input inside the loop; the loop over time; a GRU for packed sequences.

In this file time is the first axis ([S, B, D]), so that a step of the loop is one contiguous slice. The inputs of a
cell are projected for all steps in one matrix product before the loop; only the part that depends on the previous step
is computed in the loop. Gates have the order of `torch.nn.LSTM` and `torch.nn.GRU`.

The sentences of documents have very different lengths. `PackedGRU` sorts them by length, longest first, so that the
sentences that have a token at step t are the first rows, and stores the tokens step by step without padding: [P, D] for
P tokens. Its backward pass is written by hand: it stores six numbers per token and hidden unit, and the gradient of the
recurrent weights is one matrix product over all tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.init import glorot, stack

CellState = tuple[Tensor, ...]
"""The state of a cell: a tuple of tensors [N, D], of which the first is the hidden state."""


class RecurrentCell(nn.Module):
    """Base class of LSTM and GRU cells with `inputs` inputs and, optionally, `fed` more inputs known only in the loop.

    The layer `input` computes the part of the gates that depends on the inputs, for any number of steps at once. An
    example of an input that is known only inside the loop over time is the attention context; `feed_in` adds it.
    """

    gates: int
    carried: int  # number of state tensors

    def __init__(self, inputs: int, width: int, fed: int = 0):
        super().__init__()
        self.width = width
        self.input = glorot(nn.Linear(inputs, self.gates * width), self.gates)
        self.input_feeding = glorot(nn.Linear(fed, self.gates * width, bias=False), self.gates) if fed else None
        self.recurrent = stack(nn.Linear(width, self.gates * width, bias=False), self.gates)
        for gate in self.recurrent.weight.chunk(self.gates):
            nn.init.orthogonal_(gate)

    def feed_in(self, read_NG: Tensor, fed_ND: Tensor) -> Tensor:
        """Add the projection of `fed_ND`, the input known only in the loop, to `read_NG`, the output of `input`.

        G is the number of gates times the width of the cell.
        """
        assert self.input_feeding is not None
        return torch.addmm(read_NG, fed_ND, self.input_feeding.weight.t())

    def start(self, rows: int) -> CellState:
        return (self.recurrent.weight.new_zeros(rows, self.width),) * self.carried

    @abstractmethod
    def forward(self, read_NG: Tensor, state: CellState) -> CellState:
        """Compute the next state from the previous `state` and `read_NG`, the output of `input` for this step."""


class LSTM(RecurrentCell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997); the bias of the forget gate is initially one."""

    gates, carried = 4, 2

    def __init__(self, inputs: int, width: int, fed: int = 0):
        super().__init__(inputs, width, fed)
        nn.init.ones_(self.input.bias[width : 2 * width])

    def forward(self, read_NG: Tensor, state: CellState) -> CellState:
        hidden, memory = state
        gates = torch.addmm(read_NG, hidden, self.recurrent.weight.t())
        keep, candidate, show = gates.split([2 * self.width, self.width, self.width], dim=-1)
        write, forget = keep.sigmoid().chunk(2, dim=-1)
        memory = torch.addcmul(forget * memory, write, candidate.tanh())
        return show.sigmoid() * memory.tanh(), memory


class GRU(RecurrentCell):
    """Gated recurrent unit (Cho et al. 2014), with the reset gate applied after the recurrent product, as in cuDNN."""

    gates, carried = 3, 1

    def __init__(self, inputs: int, width: int, fed: int = 0):
        super().__init__(inputs, width, fed)
        self.candidate_bias = nn.Parameter(torch.zeros(width))

    def forward(self, read_NG: Tensor, state: CellState) -> CellState:
        (hidden,) = state
        split = [2 * self.width, self.width]
        read, candidate = read_NG.split(split, dim=-1)
        recur, recalled = F.linear(hidden, self.recurrent.weight).split(split, dim=-1)
        reset, update = (read + recur).sigmoid().chunk(2, dim=-1)
        candidate = torch.addcmul(candidate, reset, recalled + self.candidate_bias).tanh()
        return (torch.lerp(candidate.to(hidden.dtype), hidden, update.to(hidden.dtype)),)  # autocast changes dtypes


CELLS: dict[str, type[RecurrentCell]] = {"lstm": LSTM, "gru": GRU}


def unroll(
    cell: RecurrentCell, read_SBG: Tensor, state: CellState, mask_SB: Tensor | None = None, *, backward: bool = False
) -> tuple[Tensor, CellState]:
    """Run a cell over a sequence; return the hidden states [S, B, D] in the order of the sequence, and the final state.

    `read_SBG` is the output of `cell.input` for all steps; `state` is the initial state. With `backward`, the cell
    starts at the last step. Where the mask is False (padding), the state does not change.
    """
    reads = read_SBG.unbind(0)
    padded = [] if mask_SB is None else (~mask_SB.all(dim=1)).tolist()
    outputs: list[Tensor] = [read_SBG] * len(reads)
    for place in reversed(range(len(reads))) if backward else range(len(reads)):
        new = cell(reads[place], state)
        if mask_SB is not None and padded[place]:
            real = mask_SB[place].unsqueeze(-1)
            new = tuple(torch.where(real, after, before) for after, before in zip(new, state, strict=True))
        state = new
        outputs[place] = state[0]
    return torch.stack(outputs), state


class RecurrentLayer(nn.Module):
    """A recurrent layer with one cell per entry of `backward`, whose states are concatenated.

    `backward` tells for each cell whether it runs backward: (False, True) is a bidirectional layer. `kind`: "lstm" or
    "gru".
    """

    def __init__(self, kind: str, inputs: int, width: int, backward: tuple[bool, ...]):
        super().__init__()
        self.backward = backward
        self.cells = nn.ModuleList(CELLS[kind](inputs, width) for _ in backward)
        self.width = width * len(backward)

    def forward(self, x_SBD: Tensor, mask_SB: Tensor | None) -> tuple[Tensor, CellState]:
        """Return the hidden states [S, B, D] of all steps, and the final state; each concatenated over the cells."""
        outputs, lasts = [], []
        for cell, backward in zip(self.cells, self.backward, strict=True):
            assert isinstance(cell, RecurrentCell)
            output, last = unroll(cell, cell.input(x_SBD), cell.start(x_SBD.shape[1]), mask_SB, backward=backward)
            outputs.append(output)
            lasts.append(last)
        joined = tuple(torch.cat(parts, dim=-1) for parts in zip(*lasts, strict=True))
        return torch.cat(outputs, dim=-1), joined


class PackedLayout:
    """Converts N padded sequences to packed form, which has only their P real tokens, and back.

    The packed order: the first tokens of all sequences, then all second tokens, and so on; in each step, the token of
    the longest sequence comes first.
    """

    def __init__(self, mask_NS: Tensor):
        rows, steps = mask_NS.shape
        self.shape = (rows, steps)
        order_N = mask_NS.sum(1).argsort(descending=True, stable=True)
        step_P, rank_P = mask_NS[order_N].t().nonzero(as_tuple=True)
        self.row_P = order_N[rank_P]
        """Index of the sequence of each packed token."""
        self.place_P = self.row_P * steps + step_P
        """Index of each packed token in the flattened padded sequences."""
        self.sizes = [size for size in mask_NS.sum(0).tolist() if size]
        """For each step, the number of sequences that have a token at this step."""

    def pack(self, x_NSD: Tensor) -> Tensor:
        """Select the P real tokens of N padded sequences, in packed order: [P, D]."""
        return x_NSD.flatten(0, 1).index_select(0, self.place_P.to(x_NSD.device))

    def unpack(self, x_PD: Tensor) -> Tensor:
        """Restore N padded sequences [N, S, D] from P packed tokens; zero on padding."""
        rows, steps = self.shape
        flat = x_PD.new_zeros(rows * steps, x_PD.shape[-1]).index_copy(0, self.place_P.to(x_PD.device), x_PD)
        return flat.unflatten(0, (rows, steps))


class PackedGRU(nn.Module):
    """A bidirectional GRU over packed sequences (`PackedLayout`); the states of both directions are concatenated."""

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.forwards, self.backwards = GRU(inputs, width), GRU(inputs, width)

    def forward(self, x_PD: Tensor, sizes: list[int]) -> Tensor:
        """Hidden states [P, 2 D] of P packed tokens; `sizes[t]` is the number of sequences with a token at step t."""
        states_PD = run_packed(self.forwards, x_PD, sizes)
        return torch.cat([states_PD, run_packed(self.backwards, x_PD, sizes, backward=True)], dim=-1)


def run_packed(cell: GRU, x_PD: Tensor, sizes: list[int], *, backward: bool = False) -> Tensor:
    """Run a GRU cell over packed sequences, from a state of zeros; return the hidden states [P, D] of the P tokens.

    `sizes[t]` is the number of sequences that have a token at step t. With `backward`, the last token is read first.
    """
    states_PD: Tensor = _RunGRU.apply(  # type: ignore[no-untyped-call]
        cell.input(x_PD), cell.recurrent.weight, cell.candidate_bias, sizes, backward
    )
    return states_PD


def _steps(sizes: list[int], backward: bool) -> list[slice]:
    """The slice of each time step in the packed tokens; step t has `sizes[t]` tokens. `backward`: last step first."""
    steps = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    return steps[::-1] if backward else steps


class _RunGRU(torch.autograd.Function):
    """Runs a GRU over packed sequences, with a backward pass that is written by hand.

    A step is h' = n + z (h - n), with gates r, z = sigmoid(read + U h) and candidate n = tanh(read + r (U h + b)).
    `read` is the part that depends on the input. The longest sequence is the first row. So in forward direction, the
    last rows end from step to step; in backward direction, rows with a state of zeros are added at the end.
    """

    @staticmethod
    def forward(
        context: Any, read_PG: Tensor, recur_GD: Tensor, bias_D: Tensor, sizes: list[int], backward: bool
    ) -> Tensor:
        tokens, width = read_PG.shape[0], recur_GD.shape[1]
        recur_GD = recur_GD.to(read_PG.dtype)  # bfloat16 under autocast
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
        # Compute everything that does not depend on the gradient of the next step, for all steps at once.
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
