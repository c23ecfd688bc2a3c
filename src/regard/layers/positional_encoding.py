"""Positions: how a token knows its place. Self-attention alone cannot tell one order of its input from another."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import ModelError


def sinusoids(length: int, width: int, start: int = 0) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / width)), PE(pos, 2i + 1) = cos of the same (Vaswani et al. 2017): [T, D].

    Each pair of dimensions is a hand of a clock of its own speed, so PE(pos + k) is PE(pos) turned by an angle that
    depends on k alone. Computed in double precision: far positions stay exact.
    """
    place = torch.arange(start, start + length, dtype=torch.float64)
    speed = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.outer(place, speed)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width].to(torch.float32)


class _Table(nn.Module):
    """A table of rows by position that grows when a longer sentence comes; nothing of it is stored with the weights."""

    rows: Tensor

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.register_buffer("rows", torch.empty(0, width), persistent=False)

    def between(self, start: int, stop: int) -> Tensor:
        if stop > self.rows.shape[0]:
            with torch.inference_mode(False):  # rows that grew while translating must still do for training
                self.rows = sinusoids(max(stop, 2 * self.rows.shape[0], 64), self.width).to(self.rows)
        return self.rows[start:stop]


class SinusoidalEncoding(nn.Module):
    """Fixed sinusoids, for sentences of any length."""

    def __init__(self, width: int):
        super().__init__()
        self.table = _Table(width)

    def forward(self, length: int, start: int = 0) -> Tensor:
        """Rows [T, D] for positions start ... start + length - 1."""
        return self.table.between(start, start + length)


class LearnedEncoding(nn.Module):
    """One learned vector a position (ConvS2S; Gehring et al. 2017). A longer sentence is refused, never guessed."""

    def __init__(self, width: int, longest: int):
        super().__init__()
        self.longest = longest
        self.embed = nn.Embedding(longest, width)
        nn.init.normal_(self.embed.weight, std=width**-0.5)

    def forward(self, length: int, start: int = 0) -> Tensor:
        """Rows [T, D] for positions start ... start + length - 1."""
        if start + length > self.longest:
            raise ModelError(
                f"a sentence of {start + length} tokens is longer than the {self.longest} learned positions; "
                "split it, or train with model.positional_encoding = sinusoidal or a larger model.max_positions"
            )
        return self.embed.weight[start : start + length]


class RotaryEncoding(nn.Module):
    """Turns queries and keys by their position (Su et al. 2021), so that a score depends on the distance alone."""

    def __init__(self, head_width: int):
        super().__init__()
        if head_width % 2:
            raise ModelError(f"rotary positions need an even head width, not {head_width}")
        self.table = _Table(head_width)

    def forward(self, x_BHTK: Tensor, start: int = 0) -> Tensor:
        """Turn each pair of dimensions of x by its angle at that position."""
        rows = self.table.between(start, start + x_BHTK.shape[-2])
        sin, cos = rows[:, 0::2], rows[:, 1::2]
        even, odd = x_BHTK[..., 0::2], x_BHTK[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class AddPositions(nn.Module):
    """Token embedding plus position."""

    def __init__(self, positions: SinusoidalEncoding | LearnedEncoding):
        super().__init__()
        self.positions = positions

    def forward(self, x_BTD: Tensor, start: int = 0) -> Tensor:
        """Place x at positions start, start + 1, ..."""
        return x_BTD + self.positions(x_BTD.shape[1], start)


class ConcatenatePositions(nn.Module):
    """Token embedding beside position, mapped back to the model's width.

    Since W [e; p] = W1 e + W2 p, this is a sum in which the model learns how much room each part gets.
    """

    def __init__(self, positions: SinusoidalEncoding | LearnedEncoding, width: int, position_width: int):
        super().__init__()
        self.positions = positions
        self.join = nn.Linear(width + position_width, width, bias=False)
        with torch.no_grad():  # start from "the token as it is, and a little of the place"
            self.join.weight[:, :width] = torch.eye(width)

    def forward(self, x_BTD: Tensor, start: int = 0) -> Tensor:
        """Place x at positions start, start + 1, ..."""
        place_TP = self.positions(x_BTD.shape[1], start)
        return self.join(torch.cat([x_BTD, place_TP.expand(x_BTD.shape[0], -1, -1)], dim=-1))


class NoPositions(nn.Module):
    """Leaves the order of the tokens unsaid."""

    def forward(self, x_BTD: Tensor, start: int = 0) -> Tensor:
        """Give x back."""
        return x_BTD


def position_layer(kind: str, join: str, width: int, longest: int) -> nn.Module:
    """The layer that places token embeddings: "sinusoidal" or "learned", by "add" or "concatenate"; or none."""
    if kind in ("none", "rotary"):
        return NoPositions()
    part = width if join == "add" else max(width // 8 * 2, 2)
    rows = SinusoidalEncoding(part) if kind == "sinusoidal" else LearnedEncoding(part, longest)
    return AddPositions(rows) if join == "add" else ConcatenatePositions(rows, width, part)
