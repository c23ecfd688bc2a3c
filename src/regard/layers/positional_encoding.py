"""Positional encodings: sinusoidal, learned and rotary. Without them self-attention ignores the order of its input."""

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
        rows = self.between(start, start + x_BHTK.shape[-2])
        sin, cos = rows[:, 0::2], rows[:, 1::2]
        even, odd = x_BHTK[..., 0::2], x_BHTK[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class AddPositions(nn.Module):
    """Adds the positional encoding to the token embeddings."""

    def __init__(self, positions: SinusoidalEncoding | LearnedEncoding):
        super().__init__()
        self.positions = positions

    def forward(self, x_BTD: Tensor, start: int = 0) -> Tensor:
        return x_BTD + self.positions(x_BTD.shape[1], start)


class ConcatenatePositions(nn.Module):
    """Projects token embedding e and positional encoding p together to the width of the model: W [e; p], W learned."""

    def __init__(self, positions: SinusoidalEncoding | LearnedEncoding, width: int, position_width: int):
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


def position_layer(kind: str, join: str, width: int, longest: int) -> nn.Module:
    """Build the layer that adds (`join` = "add") or concatenates positional encodings of a `kind` to token embeddings.

    `kind` is "sinusoidal", "learned" (for at most `longest` positions), "rotary" or "none". With "none" and
    "rotary", the layer changes nothing: rotary encoding is applied to queries and keys, in `SelfAttention`.
    """
    if kind in ("none", "rotary"):
        return NoPositions()
    part = width if join == "add" else max(width // 8 * 2, 2)
    rows = SinusoidalEncoding(part) if kind == "sinusoidal" else LearnedEncoding(part, longest)
    return AddPositions(rows) if join == "add" else ConcatenatePositions(rows, width, part)
