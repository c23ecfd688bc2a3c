"""Data for plots: positional encodings, their dot products, and embeddings projected to two dimensions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import ModelError
from regard.layers.positional_encoding import LearnedEncoding, RotaryEncoding, SinusoidalEncoding, sinusoids
from regard.models.base import Seq2Seq


class PositionPicture(NamedTuple):
    """Positional encodings of a model, their dot products, and the matrix that maps PE(p) to PE(p + shift)."""

    kind: str  # "sinusoidal", "learned" or "rotary"
    rows_TD: Tensor
    """One row per position. Rotary encoding: sine and cosine of the angles by which queries and keys are rotated."""
    dots_TT: Tensor  # PE(p) . PE(q) for all positions p and q; for sinusoids they depend on |p - q| only
    rotation_DD: Tensor | None
    """The matrix M with PE(p + shift) = M PE(p) for every p; None for learned encodings, which have no such M."""


def picture_positions(model: nn.Module, length: int, shift: int = 1) -> PositionPicture:
    """Compute the encodings PE(p) of the first `length` positions, and the matrix from PE(p) to PE(p + `shift`)."""
    kinds = (("sinusoidal", SinusoidalEncoding), ("learned", LearnedEncoding), ("rotary", RotaryEncoding))
    for kind, layer in ((kind, m) for kind, wanted in kinds for m in model.modules() if isinstance(m, wanted)):
        rows_TD = layer.between(0, length) if isinstance(layer, RotaryEncoding) else layer(length)
        rows_TD = rows_TD.detach().cpu().float()
        rotates = kind != "learned" and rows_TD.shape[1] % 2 == 0
        rotation_DD = shift_rotation(shift, rows_TD.shape[1]) if rotates else None
        return PositionPicture(kind, rows_TD, rows_TD @ rows_TD.mT, rotation_DD)
    raise ModelError("this model has no positional encodings; choose a Transformer that has them")


def shift_rotation(shift: int, width: int) -> Tensor:
    """The matrix M [D, D] with PE(p + shift) = M PE(p) for sinusoidal encodings PE of `width` D.

    M rotates each pair (sine, cosine), because sin(a + b) = sin a cos b + cos a sin b and cos(a + b) = cos a cos b -
    sin a sin b.
    """
    sin, cos = sinusoids(1, width, start=shift)[0].unflatten(0, (-1, 2)).unbind(-1)
    turns = torch.stack([torch.stack([cos, sin], dim=-1), torch.stack([-sin, cos], dim=-1)], dim=-2)
    return torch.block_diag(*turns)


def plane(vectors_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Project vectors onto their first two principal components (PCA).

    Returns the projections [N, 2] and the share of the total variance that each component explains, [2]. The sign of a
    component is chosen so that its entry with the largest absolute value is positive.
    """
    centered_ND = vectors_ND.double() - vectors_ND.double().mean(0)
    _, strength_R, directions_RD = torch.linalg.svd(centered_ND, full_matrices=False)
    largest_R = directions_RD.gather(1, directions_RD.abs().argmax(1, keepdim=True))
    points_NR = centered_ND @ (directions_RD * torch.where(largest_R < 0, -1.0, 1.0)).mT
    variance_R = strength_R.square()
    total = variance_R.sum().clamp(min=torch.finfo(torch.float64).tiny)
    missing = max(0, 2 - len(variance_R))  # a single vector, or one dimension, has fewer components
    return F.pad(points_NR[:, :2], (0, missing)), F.pad(variance_R[:2] / total, (0, missing))


def embedding_table(model: Seq2Seq, side: str = "encoder") -> Tensor:
    """The token embeddings [V, D] of the encoder or decoder (`side`), scaled as in the model, without positions."""
    try:
        embed = model.get_submodule({"encoder": "encoder.embed", "decoder": "embed"}[side])
    except AttributeError:
        raise ModelError(f"this model has no {side} with token embeddings; choose the other side") from None
    tokens, scale = embed.tokens, embed.scale
    assert isinstance(tokens, nn.Embedding)
    assert isinstance(scale, float)
    return tokens.weight.detach() * scale
