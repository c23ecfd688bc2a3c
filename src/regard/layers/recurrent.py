"""Recurrent cells, the loop that runs one over a sequence, and attention from inside such a loop.

Inside this file time comes first ([S, B, D]): a step of the loop is then one contiguous slice. What a cell reads from
below is projected for all steps in one product before the loop; only what depends on the step before stays inside.
Gates stand in the order of `torch.nn.LSTM` and `torch.nn.GRU`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import SettingsError
from regard.layers.attention import Bilinear, Dot, KeyValue, Perceptron, ScaledDot, attend
from regard.layers.initialise import glorot, stack
from regard.layers.taps import Seen, Tap

CellState = tuple[Tensor, ...]
"""What a cell carries from step to step, each [N, D]; the first is the hidden state that others read."""


class Cell(nn.Module):
    """A recurrent cell. `fed` is the width of what reaches it only during the loop, such as an attended context."""

    gates: int
    carried: int

    def __init__(self, inputs: int, width: int, fed: int = 0):
        super().__init__()
        self.width = width
        self.inward = glorot(nn.Linear(inputs, self.gates * width), self.gates)
        self.feed = glorot(nn.Linear(fed, self.gates * width, bias=False), self.gates) if fed else None
        self.recur = stack(nn.Linear(width, self.gates * width, bias=False), self.gates)
        for gate in self.recur.weight.chunk(self.gates):
            nn.init.orthogonal_(gate)

    def read(self, x: Tensor) -> Tensor:
        """The part of the gates that comes from below: any number of steps and rows at once."""
        return self.inward(x)

    def feed_in(self, read_NG: Tensor, fed_ND: Tensor) -> Tensor:
        """Add what came up during the loop to what was read before it."""
        assert self.feed is not None
        return torch.addmm(read_NG, fed_ND, self.feed.weight.t())

    def start(self, rows: int) -> CellState:
        """A state of zeros."""
        return (self.recur.weight.new_zeros(rows, self.width),) * self.carried

    @abstractmethod
    def forward(self, read_NG: Tensor, state: CellState) -> CellState:
        """One step."""


class LSTM(Cell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997) with a forget gate that starts open."""

    gates, carried = 4, 2

    def __init__(self, inputs: int, width: int, fed: int = 0):
        super().__init__(inputs, width, fed)
        nn.init.ones_(self.inward.bias[width : 2 * width])

    def forward(self, read_NG: Tensor, state: CellState) -> CellState:
        """One step: forget, write, show."""
        hidden, memory = state
        gates = torch.addmm(read_NG, hidden, self.recur.weight.t())
        keep, candidate, show = gates.split([2 * self.width, self.width, self.width], dim=-1)
        write, forget = keep.sigmoid().chunk(2, dim=-1)
        memory = torch.addcmul(forget * memory, write, candidate.tanh())
        return show.sigmoid() * memory.tanh(), memory


class GRU(Cell):
    """Gated recurrent unit (Cho et al. 2014), with the reset gate after the recurrent product, as in cuDNN."""

    gates, carried = 3, 1

    def __init__(self, inputs: int, width: int, fed: int = 0):
        super().__init__(inputs, width, fed)
        self.candidate_bias = nn.Parameter(torch.zeros(width))

    def forward(self, read_NG: Tensor, state: CellState) -> CellState:
        """One step: between the old state and a candidate made of what the reset gate lets through."""
        (hidden,) = state
        split = [2 * self.width, self.width]
        read, candidate = read_NG.split(split, dim=-1)
        recur, recalled = F.linear(hidden, self.recur.weight).split(split, dim=-1)
        reset, update = (read + recur).sigmoid().chunk(2, dim=-1)
        candidate = torch.addcmul(candidate, reset, recalled + self.candidate_bias).tanh()
        return (torch.lerp(candidate.to(hidden.dtype), hidden, update.to(hidden.dtype)),)  # may differ under autocast


CELLS: dict[str, type[Cell]] = {"lstm": LSTM, "gru": GRU}


def unroll(
    cell: Cell, read_SBG: Tensor, state: CellState, mask_SB: Tensor | None = None, *, backward: bool = False
) -> tuple[Tensor, CellState]:
    """Run a cell over a sequence it has read: hidden states [S, B, D] in the order of the sequence, and the last state.

    Where the mask is False the state stands still: padding changes nothing, whichever direction the cell comes from.
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


class Layer(nn.Module):
    """One cell over a sequence, or two from both ends whose states stand side by side."""

    def __init__(self, kind: str, inputs: int, width: int, backward: tuple[bool, ...]):
        super().__init__()
        self.backward = backward
        self.cells = nn.ModuleList(CELLS[kind](inputs, width) for _ in backward)
        self.width = width * len(backward)

    def forward(self, x_SBD: Tensor, mask_SB: Tensor | None) -> tuple[Tensor, CellState]:
        """States [S, B, D] and the last state of each direction, joined."""
        outputs, lasts = [], []
        for cell, backward in zip(self.cells, self.backward, strict=True):
            assert isinstance(cell, Cell)
            output, last = unroll(cell, cell.read(x_SBD), cell.start(x_SBD.shape[1]), mask_SB, backward=backward)
            outputs.append(output)
            lasts.append(last)
        joined = tuple(torch.cat(parts, dim=-1) for parts in zip(*lasts, strict=True))
        return torch.cat(outputs, dim=-1), joined


class Look(nn.Module):
    """Single-headed attention from inside a loop: N queries a step, the same number for each of B sentences."""

    def __init__(self, score: str, query_width: int, memory_width: int, name: str, inner: int = 0):
        """`inner`: the width of a perceptron; 0: that of the query."""
        super().__init__()
        self.memory_width = memory_width
        if score in ("dot", "scaled") and query_width != memory_width:
            raise SettingsError(
                f'model.score = "{score}" needs states of one width, not {query_width} in the decoder and'
                f' {memory_width} in the encoder; choose "general" or "concat"'
            )
        self.score: Dot | Perceptron
        if score == "concat":
            self.score = Perceptron(query_width, memory_width, inner or query_width)
        elif score == "general":
            self.score = Bilinear(query_width, memory_width)
        else:
            self.score = ScaledDot() if score == "scaled" else Dot()
        self.tap = Tap(name)

    def prepare(self, states_BSD: Tensor) -> tuple[Tensor, ...]:
        """The keys' own part of the score, once a sentence; a dot product has none and takes the states as they are."""
        return (self.score.prepare(states_BSD),) if isinstance(self.score, Perceptron) else ()

    def forward(self, query_ND: Tensor, source: KeyValue, mask_BS: Tensor | None, tap: Tap | None) -> Tensor:
        """What the queries see, [N, D]."""
        query = query_ND.unflatten(0, (source.value.shape[0], 1, -1))  # [B, 1 head, N / B, D]
        mask = None if mask_BS is None else mask_BS[:, None, None, :]
        key, value = source.key.unsqueeze(1), source.value.unsqueeze(1)
        return attend(query, key, value, mask, score=self.score, tap=tap).flatten(0, 2)

    @contextmanager
    def one_pass(self) -> Iterator[Tap]:
        """A tap for the steps of a loop, which are recorded as one pass when the loop is over.

        Listeners are asked at every step: what they change decides what the next step sees.
        """
        if self.tap.idle:
            yield self.tap
            return
        steps: list[Seen] = []
        each = Tap(self.tap.name)
        each.listeners = self.tap.listeners
        with each.attached(recorder=steps.append):
            yield each
        query = torch.cat([seen.query_BHTK for seen in steps], dim=-2)
        weights = torch.cat([seen.weights_BHTS for seen in steps], dim=-2)
        output = torch.cat([seen.output_BHTK for seen in steps], dim=-2)
        self.tap.record(Seen(self.tap.name, query, steps[0].key_BHSK, steps[0].value_BHSK, weights, output))
