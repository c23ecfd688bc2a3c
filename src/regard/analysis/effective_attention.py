"""Effective attention: which part of the weights reaches the output, and which part nobody will ever see.

After "On Identifiability in Transformers", Brunner et al. 2020. A head adds A G to the stream: its weights A [T, S]
times what each key has to give, G = values [S, K] through the head's slice of the output projection [K, D] (the paper
calls it T). G has at most K independent rows. If a row of weights spreads over more keys than that, there are
directions x with x G = 0, the left null space of G: the part of the weights that lies in it changes nothing, and what
is orthogonal to it, the effective attention, is all that the model ever used.

Two spaces must be told apart. The null space itself has dimension S - rank(G), at least S - K; removing a row's part in
it keeps the output, but the rest need not be positive nor sum to one. A second set of weights that is a distribution
again may differ only by vectors that also sum to zero: the null space of [G, 1], of dimension S - rank([G, 1]), which
is one less unless the ones are themselves a combination of the columns of G. Whether the model's own queries and keys
could ever produce those other weights is not asked, by the paper or here.

All of it is computed in double precision. A singular value counts as zero up to max(S, K) times the rounding unit of
the recorded values times the largest singular value: below that it is noise of the recording.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.errors import ModelError


@dataclass(frozen=True)
class EffectiveAttention:
    """Attention weights split in two: `effective_HTS` + `null_HTS` are the weights, and only the first has an effect.

    Where rows see different keys (a causal mask), each row has a null space of its own.
    """

    effective_HTS: Tensor
    null_HTS: Tensor
    dimension_HT: Tensor
    """Dimension of the null space of each row, over the keys that the row sees."""
    freedom_HT: Tensor
    """Dimension of its part whose vectors sum to zero: the ways to change a row and leave it a distribution."""
    correlation_H: Tensor
    """Pearson's, of raw and effective weights over all visible entries; NaN where either does not vary."""
    head_width: int

    @property
    def dimension_H(self) -> Tensor:
        """Dimension of the null space of each head: that of its least determined row."""
        return self.dimension_HT.amax(-1)

    @property
    def freedom_H(self) -> Tensor:
        """The same for weights that stay distributions."""
        return self.freedom_HT.amax(-1)

    @property
    def identifiable_H(self) -> Tensor:
        """Whether the output tells the weights: no null space, in any row."""
        return self.dimension_H == 0

    @property
    def warning(self) -> str | None:
        """What a reader of the raw weights must know, in plain words; None if they may be read as they are."""
        keys, doubtful = self.null_HTS.shape[-1], int((~self.identifiable_H).sum())
        if not doubtful:
            return None
        if keys > self.head_width:
            reason = f"{keys} tokens are longer than the heads are wide ({self.head_width})"
        else:
            reason = "what the tokens have to give is not independent"
        return (
            f"{reason}: in {doubtful} of {len(self.identifiable_H)} heads a part of the weights (up to "
            f"{int(self.dimension_H.max())} of {keys} dimensions) never reaches the output, so the raw weights do not "
            "say what was used; look at the effective ones"
        )

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        correlations = self.correlation_H.double().round(decimals=4).tolist()
        return {
            "effective": self.effective_HTS.double().round(decimals=4).tolist(),
            "dimension": self.dimension_H.tolist(),
            "freedom": self.freedom_H.tolist(),
            "correlation": [None if value != value else value for value in correlations],
            "identifiable": self.identifiable_H.tolist(),
            "head_width": self.head_width,
            "warning": self.warning,
        }


def effective_attention(
    weights_HTS: Tensor, values_HSK: Tensor, outward_HKD: Tensor | None = None, mask_TS: Tensor | None = None
) -> EffectiveAttention:
    """Split the weights of each head. Without an output projection (recurrent models) the values are what is given.

    `mask_TS` is True where a row sees a key; without one, every row sees all. `seen_keys` finds it for a recording.
    """
    weights = weights_HTS.double()
    effective = torch.zeros_like(weights)
    dimension_HT = torch.zeros(weights.shape[:2], dtype=torch.int64, device=weights.device)
    freedom_HT = torch.zeros_like(dimension_HT)
    for rows_N, keys_M, space in _spaces(weights_HTS, values_HSK, outward_HKD, mask_TS):
        part = weights[:, rows_N[:, None], keys_M]  # [H, N, M]
        effective[:, rows_N[:, None], keys_M] = part @ space.reached_HMM
        dimension_HT[:, rows_N] = space.dimension_H[:, None]
        freedom_HT[:, rows_N] = space.freedom_H[:, None]
    visible_TS = torch.ones_like(weights[0], dtype=torch.bool) if mask_TS is None else mask_TS
    return EffectiveAttention(
        effective.to(weights_HTS.dtype),
        (weights - effective).to(weights_HTS.dtype),
        dimension_HT,
        freedom_HT,
        _correlate(weights[:, visible_TS], effective[:, visible_TS]).to(weights_HTS.dtype),
        values_HSK.shape[-1],
    )


def seen_keys(weights_HTS: Tensor) -> Tensor:
    """The mask [T, S] behind recorded weights: a key that gets exactly nothing from every head was not to be seen."""
    return (weights_HTS != 0).any(0)


# ---------------------------------------------------------------------------------------------------------------------
# The spaces


class _Space(NamedTuple):
    """What M visible keys have to give, in each head."""

    reached_HMM: Tensor
    """Projects a row of weights on what reaches the output."""
    dimension_H: Tensor
    freedom_H: Tensor


def _spaces(
    weights_HTS: Tensor, values_HSK: Tensor, outward_HKD: Tensor | None, mask_TS: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, _Space]]:
    """Rows that see the same keys, those keys, and their space. Rows that see nothing are left out."""
    heads, rows, keys = weights_HTS.shape
    if values_HSK.shape[:2] != (heads, keys):
        raise ModelError(
            f"weights of {heads} heads over {keys} keys do not fit values of {values_HSK.shape[0]} heads and "
            f"{values_HSK.shape[1]} keys; take both from one trace of tokens (not of words)"
        )
    given_HSD = values_HSK.double() if outward_HKD is None else values_HSK.double() @ outward_HKD.double()
    precision = torch.finfo(values_HSK.dtype).eps
    if mask_TS is None:
        mask_TS = torch.ones(rows, keys, dtype=torch.bool, device=weights_HTS.device)
    patterns, pattern_T = torch.unique(mask_TS, dim=0, return_inverse=True)
    for number, pattern_S in enumerate(patterns):
        keys_M = pattern_S.nonzero()[:, 0]
        if len(keys_M):
            tolerance = max(len(keys_M), values_HSK.shape[-1]) * precision
            yield (pattern_T == number).nonzero()[:, 0], keys_M, _space(given_HSD[:, keys_M], tolerance)


def _space(given_HMD: Tensor, tolerance: float) -> _Space:
    size = given_HMD.shape[1]
    left_HMR, strength_HR, _ = torch.linalg.svd(given_HMD, full_matrices=False)
    counts_HR = strength_HR > tolerance * strength_HR[:, :1]
    left_HMR = left_HMR * counts_HR[:, None]
    reached_HMM = left_HMR @ left_HMR.mT
    null_HMM = torch.eye(size, dtype=given_HMD.dtype, device=given_HMD.device) - reached_HMM
    ones_HM = null_HMM.sum(-1)  # the part of (1, ..., 1) within the null space: moving along it changes a row's sum
    unbalanced_H = ones_HM.norm(dim=-1) > tolerance * size**0.5
    dimension_H = size - counts_HR.sum(-1)
    return _Space(reached_HMM, dimension_H, dimension_H - unbalanced_H.long())


def _correlate(first_HN: Tensor, second_HN: Tensor) -> Tensor:
    """Pearson's correlation of each head; NaN where one of the two is constant."""
    first, second = (x_HN - x_HN.mean(-1, keepdim=True) for x_HN in (first_HN, second_HN))
    spread_H = first.norm(dim=-1) * second.norm(dim=-1)
    smallest = 1e-12 * first_HN.norm(dim=-1) * second_HN.norm(dim=-1)
    return torch.where(spread_H > smallest, (first * second).sum(-1) / spread_H, torch.nan)
