"""Words and places as pictures: position encodings, what they say of each other, and embeddings in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import ModelError
from regard.layers.positional_encoding import LearnedEncoding, RotaryEncoding, SinusoidalEncoding, sinusoids
from regard.models.base import Seq2Seq


@dataclass(frozen=True)
class PositionPicture:
    """What a model knows of places, as a heat map, its dot products and the rotation from place to place."""

    kind: str
    """ "sinusoidal", "learned" or "rotary"."""
    rows_TD: Tensor
    """A row a place. For rotary positions: sine and cosine of the angles by which queries and keys are turned."""
    dots_TT: Tensor
    shift: int
    rotation_DD: Tensor | None
    """M with PE(p + shift) = M PE(p) for every p; None for learned rows, which obey no such law."""

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        rotation = self.rotation_DD
        return {
            "kind": self.kind,
            "rows": self.rows_TD.double().round(decimals=4).tolist(),
            "dots": self.dots_TT.double().round(decimals=4).tolist(),
            "shift": self.shift,
            "rotation": None if rotation is None else rotation.double().round(decimals=4).tolist(),
        }


def picture_positions(model: nn.Module, length: int, shift: int = 1) -> PositionPicture:
    """The position encodings of a model for the first `length` places."""
    kinds = (("sinusoidal", SinusoidalEncoding), ("learned", LearnedEncoding), ("rotary", RotaryEncoding))
    for kind, layer in ((kind, m) for kind, wanted in kinds for m in model.modules() if isinstance(m, wanted)):
        if isinstance(layer, RotaryEncoding):
            rows_TD = layer.table.between(0, length)
        else:
            rows_TD = layer(length)
        rows_TD = rows_TD.detach().cpu().float()
        rotates = kind != "learned" and rows_TD.shape[1] % 2 == 0
        rotation_DD = shift_rotation(shift, rows_TD.shape[1]) if rotates else None
        return PositionPicture(kind, rows_TD, dot_products(rows_TD), shift, rotation_DD)
    raise ModelError("this model has no position encodings to draw; it knows the order of tokens otherwise, or not")


def dot_products(rows_TD: Tensor) -> Tensor:
    """PE(p) . PE(q) of all places: symmetric; for sinusoids a function of |p - q| alone."""
    return rows_TD @ rows_TD.mT


def shift_rotation(shift: int, width: int) -> Tensor:
    """M_k [D, D] with PE(p + k) = M_k PE(p) for sinusoids: each pair of dimensions turned by its angle at place k.

    sin(a + b) = sin a cos b + cos a sin b and cos(a + b) = cos a cos b - sin a sin b.
    """
    if width % 2:
        raise ModelError(f"a shift turns pairs of dimensions, and {width} is odd")
    sin, cos = sinusoids(1, width, start=shift)[0].unflatten(0, (-1, 2)).unbind(-1)
    turns = torch.stack([torch.stack([cos, sin], dim=-1), torch.stack([-sin, cos], dim=-1)], dim=-2)
    return torch.block_diag(*turns)


@dataclass(frozen=True)
class EmbeddingPlane:
    """Vectors in two dimensions: the two directions in which they differ most."""

    points_N2: Tensor
    explained_2: Tensor
    """Share of the variance that each direction holds."""
    labels: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "points": self.points_N2.round(decimals=4).tolist(),
            "explained": self.explained_2.round(decimals=4).tolist(),
            "labels": list(self.labels),
        }


def plane(vectors_ND: Tensor, labels: Sequence[str] = ()) -> EmbeddingPlane:
    """Principal components, the first two. Signs are free: the largest part of each direction is made positive."""
    centred_ND = vectors_ND.double() - vectors_ND.double().mean(0)
    _, strength_R, directions_RD = torch.linalg.svd(centred_ND, full_matrices=False)
    largest_R = directions_RD.gather(1, directions_RD.abs().argmax(1, keepdim=True))
    points_NR = centred_ND @ (directions_RD * torch.where(largest_R < 0, -1.0, 1.0)).mT
    variance_R = strength_R.square()
    total = variance_R.sum().clamp(min=torch.finfo(torch.float64).tiny)
    points_N2, explained_2 = points_NR.new_zeros(len(points_NR), 2), variance_R.new_zeros(2)
    found = min(2, len(variance_R))  # a single vector, or one dimension, fills no plane
    points_N2[:, :found], explained_2[:found] = points_NR[:, :found], variance_R[:found] / total
    return EmbeddingPlane(points_N2, explained_2, tuple(labels))


def embedding_table(model: Seq2Seq, side: str = "encoder") -> Tensor:
    """The vectors [V, D] of a side's vocabulary as its first layer reads them, without a place."""
    where = {"encoder": "encoder.embed", "decoder": "embed"}[side]
    try:
        embed = model.get_submodule(where)
    except AttributeError:
        raise ModelError(f"this model has no {side} that reads tokens") from None
    tokens, scale = embed.tokens, embed.scale
    assert isinstance(tokens, nn.Embedding)
    assert isinstance(scale, float)
    return tokens.weight.detach() * scale
