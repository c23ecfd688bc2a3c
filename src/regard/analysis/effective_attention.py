"""Effective attention: the part of the attention weights that affects the output, and the part that does not.

After "On Identifiability in Transformers", Brunner et al. 2020. A head adds A G to the residual stream. A [T, S] are
its weights; G [S, D] is the values [S, K] times the head's slice of the output projection [K, D]. S is the number of
keys that a row of A can see. Two sets of vectors x [S] are measured:

    x G = 0                   the null space of G, of dimension S - rank(G), which is at least S - K
    x G = 0 and sum(x) = 0    the left null space of [G, 1], of dimension S - rank([G, 1]); 1 is a column of ones

A row of A can be changed by any x of the null space of G without a change of the output. So each row is split into its
projection onto the null space, which does not affect the output, and the remainder, which determines the output. The
remainder is the effective attention. Its entries can be negative, and they need not sum to one.

Two rows that both sum to one and give the same output differ by a vector of the second set. If the second set is {0},
no other row that sums to one gives the same output. Otherwise there are such rows, but neither the paper nor this
module asks whether the queries and keys of the model could produce them.

All computations are in double precision. A singular value counts as zero up to max(S, K) times the machine epsilon of
the recorded values times the largest singular value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ModelError


@dataclass(frozen=True)
class EffectiveAttention:
    """Attention weights split in two: weights = `effective_HTS` + `null_HTS`. Only `effective_HTS` affects the output.

    `null_HTS` is the part in the null space: vectors that can be added to a row of weights without a change of the
    output. If rows see different keys (a causal mask), each row has its own null space.
    """

    effective_HTS: Tensor
    null_HTS: Tensor
    dimension_HT: Tensor  # dimension of the null space of each row, over its visible keys
    freedom_HT: Tensor
    """Dimension of the space of null vectors that sum to zero: a row plus such a vector still sums to one."""
    correlation_H: Tensor
    """Pearson correlation of raw and effective weights over all visible entries; NaN if one of them is constant."""
    head_width: int

    @property
    def dimension_H(self) -> Tensor:
        """For each head, the largest dimension of a row's null space (changes of weights without effect)."""
        return self.dimension_HT.amax(-1)

    @property
    def freedom_H(self) -> Tensor:
        return self.freedom_HT.amax(-1)

    @property
    def identifiable_H(self) -> Tensor:
        """For each head, True if its output determines its weights, because the null space of every row is {0}."""
        return self.dimension_H == 0

    @property
    def warning(self) -> str | None:
        """The text of a warning that the output does not determine the raw weights; None if it does in all heads."""
        keys, doubtful = self.null_HTS.shape[-1], int((~self.identifiable_H).sum())
        if not doubtful:
            return None
        if keys > self.head_width:
            reason = f"there are more tokens ({keys}) than dimensions of a head ({self.head_width})"
        else:
            reason = "the values of the tokens are linearly dependent"
        return (
            f"{reason}: in {doubtful} of {len(self.identifiable_H)} heads a part of the weights (up to "
            f"{int(self.dimension_H.max())} of {keys} dimensions) does not affect the output, so the raw weights do "
            "not show what the model uses; see the effective weights"
        )

    def as_dict(self) -> dict[str, object]:
        """All results except the weights, as values for JSON; numbers per head are lists."""
        correlations = self.correlation_H.double().round(decimals=4).tolist()
        return {
            "dimension": self.dimension_H.tolist(),
            "freedom": self.freedom_H.tolist(),
            "correlation": [None if value != value else value for value in correlations],
            "identifiable": self.identifiable_H.tolist(),
            "warning": self.warning,
        }


def effective_attention(
    weights_HTS: Tensor, values_HSK: Tensor, outward_HKD: Tensor | None = None, mask_TS: Tensor | None = None
) -> EffectiveAttention:
    """Split the weights of each head into an effective part and a part that does not affect the output.

    `outward_HKD` is the output projection of each head; without it (recurrent models), the output of a head is its
    weights times the values. `mask_TS` is True where a key is visible to a query (default: everywhere). `seen_keys`
    infers such a mask from weights.
    """
    heads, _, keys = weights_HTS.shape
    if values_HSK.shape[:2] != (heads, keys):
        raise ModelError(
            f"weights of {heads} heads over {keys} keys do not fit values of {values_HSK.shape[0]} heads and "
            f"{values_HSK.shape[1]} keys; take both from one trace of tokens (not of words)"
        )
    weights, given_HSD = weights_HTS.double(), values_HSK.double()
    if outward_HKD is not None:
        given_HSD = given_HSD @ outward_HKD.double()
    if mask_TS is None:
        mask_TS = torch.ones_like(weights[0], dtype=torch.bool)
    effective = torch.zeros_like(weights)
    dimension_HT = torch.zeros(weights.shape[:2], dtype=torch.int64, device=weights.device)
    freedom_HT = torch.zeros_like(dimension_HT)
    patterns, pattern_T = torch.unique(mask_TS, dim=0, return_inverse=True)
    for number, pattern_S in enumerate(patterns):  # rows with the same visible keys have the same null space
        rows_N, keys_M = (pattern_T == number).nonzero()[:, 0], pattern_S.nonzero()[:, 0]
        if len(keys_M):
            tolerance = max(len(keys_M), values_HSK.shape[-1]) * torch.finfo(values_HSK.dtype).eps
            reached_HMM, dimension_H, freedom_H = _space(given_HSD[:, keys_M], tolerance)
            effective[:, rows_N[:, None], keys_M] = weights[:, rows_N[:, None], keys_M] @ reached_HMM
            dimension_HT[:, rows_N], freedom_HT[:, rows_N] = dimension_H[:, None], freedom_H[:, None]
    return EffectiveAttention(
        effective.to(weights_HTS.dtype),
        (weights - effective).to(weights_HTS.dtype),
        dimension_HT,
        freedom_HT,
        _correlate(weights[:, mask_TS], effective[:, mask_TS]).to(weights_HTS.dtype),
        values_HSK.shape[-1],
    )


def seen_keys(weights_HTS: Tensor) -> Tensor:
    """A mask [T, S] of visible keys: a key is invisible to a query if its weight is exactly zero in every head."""
    return (weights_HTS != 0).any(0)


def _space(given_HMD: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """For each head, compute which changes of weights affect the output. `given_HMD`: G, restricted to M visible keys.

    Returns the projection [M, M] onto the column space of G, the dimension of the left null space of G (x G = 0), and
    the dimension of those x that also sum to zero. Singular values up to `tolerance` times the largest one count as
    zero.
    """
    size = given_HMD.shape[1]
    left_HMR, strength_HR, _ = torch.linalg.svd(given_HMD, full_matrices=False)
    counts_HR = strength_HR > tolerance * strength_HR[:, :1]
    left_HMR = left_HMR * counts_HR[:, None]
    reached_HMM = left_HMR @ left_HMR.mT
    null_HMM = torch.eye(size, dtype=given_HMD.dtype, device=given_HMD.device) - reached_HMM
    ones_HM = null_HMM.sum(-1)  # the part of (1, ..., 1) in the null space: it changes the sum of a row
    unbalanced_H = ones_HM.norm(dim=-1) > tolerance * size**0.5
    dimension_H = size - counts_HR.sum(-1)
    return reached_HMM, dimension_H, dimension_H - unbalanced_H.long()


def _correlate(first_HN: Tensor, second_HN: Tensor) -> Tensor:
    """Pearson correlation [H] of the N numbers of each head in the two tensors; NaN if one of them is constant."""
    first, second = (x_HN - x_HN.mean(-1, keepdim=True) for x_HN in (first_HN, second_HN))
    spread_H = first.norm(dim=-1) * second.norm(dim=-1)
    smallest = 1e-12 * first_HN.norm(dim=-1) * second_HN.norm(dim=-1)
    return torch.where(spread_H > smallest, (first * second).sum(-1) / spread_H, torch.nan)
