"""Attribution by gradients: how the log-probability of an output token changes with the embeddings that made it.

Gradient times input: "Not Just a Black Box", Shrikumar et al. 2016. Integrated gradients: "Axiomatic Attribution for
Deep Networks", Sundararajan et al. 2017. Source and target prefix move together along the path, so the shares of both
add up to the whole. An input is the token's part of the embedding: its distance from the baseline at the same place.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from regard.analysis.attribution import (
    Attribution,
    Baseline,
    Embedded,
    Pair,
    chosen,
    embed,
    embed_absent,
    in_chunks,
    log_probs,
    run,
)
from regard.errors import ModelError
from regard.models.base import Seq2Seq

RULES = ("gauss", "midpoint")


def gradient(model: Seq2Seq, pair: Pair, *, baseline: Baseline = None) -> Attribution:
    """The gradient of log p times x - baseline: what integrated gradients see at the end of their path.

    Cost: three forward and T backward passes.
    """
    read, absent = embed(model, pair), embed_absent(model, pair, baseline)
    one = read.source_NSD.new_ones(1)
    return _follow(model, pair, read, absent, one, one)


def integrated(
    model: Seq2Seq, pair: Pair, *, baseline: Baseline = None, steps: int = 64, rule: str = "gauss"
) -> Attribution:
    """The mean gradient on the straight way from the baseline to the input, times its length.

    Sums to log p(input) - log p(baseline), but for `gap_T`, which more steps make smaller. `rule` spaces the steps by
    Gauss and Legendre, or evenly with a gradient at the middle of each. Where nothing is added to the embedding (rotary
    or no positions) a layer norm sees no difference between an input and a small share of it: the baseline of zeros is
    then a poor one, as the gap will tell, and a token the better choice.
    Cost: `steps` + 4 forward and T x `steps` backward passes, `steps` in a batch.
    """
    if steps < 1 or rule not in RULES:
        raise ModelError(f"integrated: steps must be at least 1 and rule one of {', '.join(RULES)}")
    read, absent = embed(model, pair), embed_absent(model, pair, baseline)
    places, shares = np.polynomial.legendre.leggauss(steps) if rule == "gauss" else _midpoints(steps)
    at_N, share_N = (read.source_NSD.new_tensor(numbers) for numbers in ((places + 1) / 2, shares / 2))
    found = _follow(model, pair, read, absent, at_N, share_N)
    with torch.no_grad():
        whole_T = (log_probs(model, pair, read) - log_probs(model, pair, absent))[0]
    shared_T = found.source_TS.sum(-1) + found.target_TT.sum(-1)
    return Attribution(found.source_TS, found.target_TT, signed=True, gap_T=(whole_T - shared_T).cpu())


def _midpoints(steps: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """Evenly spaced on [-1, 1], as Gauss and Legendre have it."""
    return (2 * np.arange(steps) + 1) / steps - 1, np.full(steps, 2 / steps)


def _follow(model: Seq2Seq, pair: Pair, read: Embedded, absent: Embedded, at_N: Tensor, share_N: Tensor) -> Attribution:
    """Gradients at places between `absent` (0) and `read` (1), weighted, times the way between them.

    The steps share a forward pass; each output token then has a backward pass of its own through all of them.
    """
    ways = [end - start for start, end in zip(absent, read, strict=True)]
    rows_T = [[torch.zeros_like(way[0, :, 0]) for way in ways] for _ in range(pair.output_1T.shape[1])]
    for steps_N in in_chunks(torch.arange(len(at_N), device=at_N.device), pair):
        at_N11 = at_N[steps_N, None, None]
        leaves = [(start + at_N11 * way).requires_grad_() for start, way in zip(absent, ways, strict=True)]
        with torch.enable_grad():
            top_NTD = run(model, pair, Embedded(*leaves))
        for t, row in enumerate(rows_T):
            with torch.enable_grad():  # scores of one token at a time: those of all others would be in vain
                log_prob_N1 = chosen(model.output(top_NTD[:, t : t + 1]), pair.output_1T[:, t : t + 1])
            slopes = torch.autograd.grad(share_N[steps_N] @ log_prob_N1, leaves, retain_graph=True)
            for cell, slope_NPD, way in zip(row, slopes, ways, strict=True):
                cell += (slope_NPD.sum(0) * way[0]).sum(-1)
    source_TS, target_TT = (torch.stack(cells) for cells in zip(*rows_T, strict=True))
    return Attribution(source_TS, target_TT, signed=True)
