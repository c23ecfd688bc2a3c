"""Entropy of attention weights, and next-token probabilities as a table of likely tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Spread:
    """Entropy of one attention: one value per head, averaged over rows."""

    bits_H: Tensor
    """0: each row has all its weight on one key."""
    evenness_H: Tensor
    """Entropy as a share of the largest possible, over rows with at least two visible keys; 1: equal weights."""


def attention_entropy(weights_HTS: Tensor, mask_TS: Tensor | None = None) -> Spread:
    """The entropy of each head. Without a mask, keys whose weight is exactly zero count as invisible."""
    weights = weights_HTS.double()
    seen_T = ((weights != 0).any(0) if mask_TS is None else mask_TS).sum(-1)
    bits_HT = -torch.xlogy(weights, weights).sum(-1) / math.log(2)
    has_choice_T = seen_T > 1
    evenness_HT = bits_HT[:, has_choice_T] / seen_T[has_choice_T].double().log2()
    evenness_H = evenness_HT.mean(-1) if has_choice_T.any() else torch.ones(len(weights), dtype=torch.float64)
    return Spread(bits_HT.mean(-1), evenness_H)


@dataclass(frozen=True)
class NextTokens:
    """Next-token probabilities: one row per position, one column per likely token of the vocabulary.

    The columns are the tokens that are among the likeliest at some position, in the order of first occurrence.
    """

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    probability_TC: Tensor
    rest_T: Tensor
    """Total probability, per row, of the tokens without a column."""
    best: tuple[tuple[int, ...], ...]
    """For each row, the columns of its likeliest tokens, best first."""
    bits_T: Tensor
    """Entropy of each row over the whole vocabulary."""

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "ids": list(self.ids),
            "tokens": list(self.tokens),
            "probability": self.probability_TC.round(decimals=4).tolist(),
            "rest": self.rest_T.round(decimals=4).tolist(),
            "best": [list(columns) for columns in self.best],
            "bits": self.bits_T.round(decimals=4).tolist(),
        }


def next_tokens(log_probs_TV: Tensor, token: Callable[[int], str], top: int = 5) -> NextTokens:
    """The table of the `top` likeliest tokens of each position; `token` gives the text of an id."""
    log_probs = log_probs_TV.double()
    top = min(top, log_probs.shape[1])
    likeliest = log_probs.topk(top, dim=-1).indices.tolist()
    column_of = {id: column for column, id in enumerate(dict.fromkeys(id for row in likeliest for id in row))}
    probability_TC = log_probs[:, list(column_of)].exp()
    probability_TV = log_probs.exp()
    return NextTokens(
        ids=tuple(column_of),
        tokens=tuple(map(token, column_of)),
        probability_TC=probability_TC,
        rest_T=(1.0 - probability_TC.sum(-1)).clamp(min=0.0),
        best=tuple(tuple(column_of[id] for id in row) for row in likeliest),
        bits_T=-torch.xlogy(probability_TV, probability_TV).sum(-1) / math.log(2),
    )
