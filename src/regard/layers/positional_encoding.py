"""Positional encodings in one dimension (tokens, frames) and two (pictures): sinusoidal, learned and rotary.

Without positional encodings, self-attention ignores the order of its input.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import ModelError


def sinusoids(length: int, width: int, start: int = 0) -> Tensor:
    """Sinusoidal encodings [T, D] of `length` positions from `start` on (Vaswani et al. 2017); `width` is D.

    PE(pos, 2i) = sin(a) and PE(pos, 2i + 1) = cos(a) with a = pos / 10000^(2i / width). PE(pos + k) is PE(pos) rotated,
    in each pair of dimensions, by an angle that depends only on k. Computed in double precision, so that high positions
    are exact.
    """
    place = torch.arange(start, start + length, dtype=torch.float64)
    speed = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.outer(place, speed)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width].to(torch.float32)


class SinusoidalTable(nn.Module):
    """A table of sinusoidal encodings, one row per position. It grows when needed and is not saved with the weights."""

    rows: Tensor

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.register_buffer("rows", torch.empty(0, width), persistent=False)

    def between(self, start: int, stop: int) -> Tensor:
        """The encodings [T, D] of the positions start ... stop - 1."""
        if stop > self.rows.shape[0]:
            with torch.inference_mode(False):  # rows added while translating must be usable in training
                self.rows = sinusoids(max(stop, 2 * self.rows.shape[0], 64), self.width).to(self.rows)
        return self.rows[start:stop]


class SinusoidalEncoding(SinusoidalTable):
    """Sinusoidal positional encoding, for sentences of any length."""

    def forward(self, length: int, start: int = 0) -> Tensor:
        return self.between(start, start + length)


class GridEncoding(nn.Module):
    """Sinusoidal encoding in two dimensions, for the places of a picture, which are numbered row by row.

    The first half of a vector encodes the row, the second half the column.
    """

    def __init__(self, width: int, grid: tuple[int, int]):
        super().__init__()
        self.grid = grid
        self.rows, self.columns = SinusoidalTable(width // 2), SinusoidalTable(width - width // 2)

    def forward(self, length: int, start: int = 0) -> Tensor:
        """The encodings [S, D] of all places; `length` must be their number."""
        return on_grid(self.grid, self.rows, self.columns, length)


class LearnedEncoding(nn.Module):
    """One learned vector per position (Gehring et al. 2017). Sentences longer than `longest` raise an error."""

    def __init__(self, width: int, longest: int):
        super().__init__()
        self.longest = longest
        self.embed = nn.Embedding(longest, width)
        nn.init.normal_(self.embed.weight, std=width**-0.5)

    def forward(self, length: int, start: int = 0) -> Tensor:
        """The learned vectors [T, D] of the positions start ... start + length - 1."""
        if start + length > self.longest:
            raise ModelError(
                f"a sentence of {start + length} tokens is longer than the {self.longest} learned positions; "
                "split it, or train with a larger model.max_positions or, in a Transformer, with sinusoidal positions"
            )
        return self.embed.weight[start : start + length]


class RotaryEncoding(SinusoidalTable):
    """Rotates queries and keys by their positions (Su et al. 2021), so that scores depend only on distances."""

    def __init__(self, head_width: int):
        super().__init__(head_width)
        if head_width % 2:
            raise ModelError(f"rotary positions need an even head width, not {head_width}; change model.heads")

    def forward(self, x_BHTK: Tensor, start: int = 0) -> Tensor:
        """Rotate each pair of dimensions of queries or keys x by its angle; the first token is at position `start`."""
        return rotate(x_BHTK, self.between(start, start + x_BHTK.shape[-2]))


class RotaryGridEncoding(nn.Module):
    """Rotary encoding in two dimensions: rotates half of the dimensions by the row, the other half by the column."""

    def __init__(self, head_width: int, grid: tuple[int, int]):
        super().__init__()
        if head_width % 4:
            raise ModelError(f"rotary positions in pictures need a head width of 4, 8, ..., not {head_width}")
        self.grid = grid
        self.rows, self.columns = SinusoidalTable(head_width // 2), SinusoidalTable(head_width // 2)

    def forward(self, x_BHSK: Tensor, start: int = 0) -> Tensor:
        return rotate(x_BHSK, on_grid(self.grid, self.rows, self.columns, x_BHSK.shape[-2]))


def on_grid(grid: tuple[int, int], rows: SinusoidalTable, columns: SinusoidalTable, length: int) -> Tensor:
    """One vector per place of a grid, numbered row by row: the encoding of its row, then that of its column."""
    height, width = grid
    if length != height * width:
        raise ModelError(
            f"a picture of {length} patches is not a grid of {height} x {width}; give pictures of one size"
        )
    row_RD, column_CD = rows.between(0, height), columns.between(0, width)
    return torch.cat([row_RD.repeat_interleave(width, 0), column_CD.repeat(height, 1)], dim=-1)


def rotate(x_BHTK: Tensor, angles_TK: Tensor) -> Tensor:
    """Rotate each pair of dimensions of x by an angle; `angles_TK` has the pairs of its sine and cosine."""
    sin, cos = angles_TK[:, 0::2], angles_TK[:, 1::2]
    even, odd = x_BHTK[..., 0::2], x_BHTK[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


Positions = SinusoidalEncoding | LearnedEncoding | GridEncoding


class AddPositions(nn.Module):
    """Adds the positional encoding to the token embeddings."""

    def __init__(self, positions: Positions):
        super().__init__()
        self.positions = positions

    def forward(self, x_BTD: Tensor, start: int = 0) -> Tensor:
        return x_BTD + self.positions(x_BTD.shape[1], start)


class ConcatenatePositions(nn.Module):
    """Projects token embedding e and positional encoding p together to the width of the model: W [e; p], W learned."""

    def __init__(self, positions: Positions, width: int, position_width: int):
        super().__init__()
        self.positions = positions
        self.join = nn.Linear(width + position_width, width, bias=False)
        with torch.no_grad():  # initially the token embedding, plus a little of the positional encoding
            self.join.weight[:, :width] = torch.eye(width)

    def forward(self, x_BTD: Tensor, start: int = 0) -> Tensor:
        place_TP = self.positions(x_BTD.shape[1], start)
        return self.join(torch.cat([x_BTD, place_TP.expand(x_BTD.shape[0], -1, -1)], dim=-1))


class NoPositions(nn.Module):
    """Returns the token embeddings unchanged, without positional encoding."""

    def forward(self, x_BTD: Tensor, start: int = 0) -> Tensor:
        return x_BTD


def position_layer(kind: str, join: str, width: int, longest: int, grid: tuple[int, int] | None = None) -> nn.Module:
    """Build the layer that adds (`join` = "add") or concatenates positional encodings of a `kind` to token embeddings.

    `kind` is "sinusoidal", "learned" (for at most `longest` positions), "rotary" or "none". With "none" and
    "rotary", the layer changes nothing: rotary encoding is applied to queries and keys, in `SelfAttention`. With a
    `grid` of rows and columns, positions have two dimensions; learned positions are then one vector per place.
    """
    if kind in ("none", "rotary"):
        return NoPositions()
    part = width if join == "add" else max(width // 8 * 2, 2)
    rows: Positions
    if kind == "learned":
        rows = LearnedEncoding(part, grid[0] * grid[1] if grid else longest)
    else:
        rows = GridEncoding(part, grid) if grid else SinusoidalEncoding(part)
    return AddPositions(rows) if join == "add" else ConcatenatePositions(rows, width, part)
