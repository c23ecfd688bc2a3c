"""Attribution by occlusion: take an input away and see what the output loses (Zeiler and Fergus 2014; Li et al. 2016).

To take a token away is to make its embedding zero, its position kept, or that of another token, such as UNK. A model
with subwords has hardly ever seen UNK, which is why zero is the default. One token is taken away at a time: two inputs
that can stand in for each other both seem to matter little.
"""

from __future__ import annotations

import torch

from regard.analysis.attribution import (
    Attribution,
    Baseline,
    Embedded,
    Pair,
    embed,
    embed_absent,
    in_chunks,
    log_probs,
)
from regard.models.base import Seq2Seq


@torch.no_grad()
def occlusion(model: Seq2Seq, pair: Pair, *, baseline: Baseline = None) -> Attribution:
    """What log p(output token) loses without the input token; negative where the output gains by its absence.

    Cost: S + T + 3 forward passes, in batches.
    """
    read, absent = embed(model, pair), embed_absent(model, pair, baseline)
    source_length = read.source_NSD.shape[1]
    away_NP = torch.eye(source_length + read.target_NTD.shape[1], dtype=torch.bool, device=read.source_NSD.device)
    parts = []
    for away in in_chunks(away_NP, pair):
        sides = away[:, :source_length, None], away[:, source_length:, None]
        versions = (torch.where(gone, nothing, x) for gone, nothing, x in zip(sides, absent, read, strict=True))
        parts.append(log_probs(model, pair, Embedded(*versions)))
    lost_TN = (log_probs(model, pair, read) - torch.cat(parts)).t()
    return Attribution(lost_TN[:, :source_length], lost_TN[:, source_length:], signed=True)
