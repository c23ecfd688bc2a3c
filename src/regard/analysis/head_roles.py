"""Roles and importance of attention heads, over many sentences.

Roles: Voita et al. 2019, "Analyzing Multi-Head Self-Attention". A role predicts a key for each query. If the key with
the largest weight of a head is the predicted key, it is a hit. A head has a role if its share of hits is large enough:

    role         predicted key                                  share of hits
    positional   the key at one offset from the query           at least 90 %, and above the baseline
    rare         the least frequent visible token               at least 50 %, and at least twice the baseline
    syntactic    the other word of a relation                   at least 10 points above the baseline
    alignment    a source word that the target word translates  at least 50 %, and at least 10 points above the baseline

The baseline is the share of hits of equal weights. For all roles but positional, it is the share of hits of the best
fixed offset if that share is larger. Comparisons with the baseline (for "rare", also with 50 %) use the lower end of
the confidence interval of the share of hits, so that a role is not found by chance in a few sentences. Tokens of one
sentence are not independent: if shares of hits vary between sentences more than by chance, the interval is wider.

Importance by ablation: the loss per token without the head, minus the loss with all heads. By gradient: Michel et al.
2019, "Are Sixteen Heads Really Better than One?", E |d loss / d gate| for a gate of 1 on the head's output, one gate
per sentence. Both use attention hooks, so they work for every architecture that has attention.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from regard.layers.hooks import listen, trace, without_heads
from regard.models.base import PairBatch, Seq2Seq, sentence_losses

Kind = Literal["positional", "rare", "syntactic", "alignment"]

OFFSETS = range(-3, 4)
FARTHEST = 12  # largest offset of the baseline, in both directions
POSITIONAL_SHARE = 0.9  # Voita et al., section 5.1
OVER_BASELINE = 0.1  # Voita et al., section 5.2
MOST = 0.5  # smallest share of hits that counts as "most cases"
TIMES_BASELINE = 2.0  # a head with the role "rare" has at least this many times the baseline
COMMON = 0.5  # an offset is a role only if this share of all queries has a key at that offset
FEWEST_SENTENCES = 20  # with fewer sentences, no head has a role
NORMAL_95 = 1.96  # a 95 % interval of a normal distribution, in standard deviations


class RoleName(NamedTuple):
    """A role that a head can have: kind, e.g. "positional", and name, e.g. "-1" (an offset) or "subject → verb"."""

    kind: Kind
    name: str


@dataclass(frozen=True)
class Evidence:
    """Evidence that a head has a role: its share of hits, a 95 % interval of the share, and the baseline.

    A hit is a query for which the largest weight of the head is on a key that the role predicts.
    """

    share: float
    baseline: float
    """Share of hits of equal weights; for roles other than positional, of the best fixed offset if that is larger."""
    low: float
    high: float
    count: int  # number of queries that were tested


@dataclass(frozen=True)
class Role:
    """A role that a head has, by kind and name, with the evidence for it."""

    kind: Kind
    name: str
    evidence: Evidence


def rarest(seen_TS: Tensor, frequency_S: Tensor) -> Tensor:
    """A mask [T, S] that is True, for each query, at the visible key (`seen_TS`) with the least frequent token.

    `frequency_S` is the frequency of each token in a corpus. If several visible keys are equally rare, all are True.
    """
    frequency_TS = frequency_S.double().expand(seen_TS.shape).masked_fill(~seen_TS, math.inf)
    return seen_TS & (frequency_TS == frequency_TS.amin(-1, keepdim=True))


# ---------------------------------------------------------------------------------------------------------------------
# Many sentences


@dataclass
class RoleCounts:
    """Numbers of hits of all heads of a layer for one possible role, per sentence.

    A hit is a query for which the largest weight of the head is on a key that the role predicts.
    """

    hits: list[Tensor] = field(default_factory=list)
    trials: list[int] = field(default_factory=list)
    chance: float = 0.0  # expected hits of equal weights
    at_offsets: Tensor = field(default_factory=lambda: torch.zeros(2 * FARTHEST + 1, dtype=torch.long))
    """For each offset from -FARTHEST to FARTHEST, the number of hits if every query chose the key at this offset."""

    def add(self, maxima_HT: Tensor, seen_TS: Tensor, right_TS: Tensor) -> None:
        """Count the hits of one sentence.

        `maxima_HT` has, for each head and query, the key with the largest weight. `seen_TS` is a mask of the visible
        keys, `right_TS` a mask of the keys that the role predicts. Only queries with a predicted key and at least two
        visible keys count.
        """
        right_TS = right_TS & seen_TS
        tried_T = right_TS.any(-1) & (seen_TS.sum(-1) > 1)
        if not tried_T.any():
            return
        right_TS, seen_TS = right_TS[tried_T], seen_TS[tried_T]
        hit_HT = right_TS.expand(len(maxima_HT), -1, -1).gather(-1, maxima_HT[:, tried_T, None])[..., 0]
        self.hits.append(hit_HT.sum(-1))
        self.trials.append(len(right_TS))
        self.chance += float((right_TS.sum(-1) / seen_TS.sum(-1)).sum())
        row, key = right_TS.nonzero(as_tuple=True)
        offset = key - tried_T.nonzero()[row, 0] + FARTHEST
        near = (offset >= 0) & (offset <= 2 * FARTHEST)
        self.at_offsets += torch.bincount(offset[near], minlength=2 * FARTHEST + 1).cpu()

    @property
    def count(self) -> int:
        return sum(self.trials)

    def evidence(self, kind: Kind) -> list[Evidence]:
        """For each head, its share of hits with an interval, and the baseline; `kind` is the kind of the role."""
        hits_NH, trials_N = torch.stack(self.hits).double().cpu(), torch.tensor(self.trials).double()
        baseline = self.chance / self.count
        if kind != "positional":
            baseline = max(baseline, float(self.at_offsets.max()) / self.count)
        shares = (hits_NH.sum(0) / trials_N.sum()).tolist()
        bounds = [interval(hits_N, trials_N) for hits_N in hits_NH.unbind(1)]
        return [Evidence(share, baseline, *ends, self.count) for share, ends in zip(shares, bounds, strict=True)]


class HeadStatistics:
    """Statistics of the heads of one attention layer over many sentences: roles with their evidence, and confidence.

    `add` counts how often the largest weight of each head is on the key that a role predicts.
    """

    def __init__(self) -> None:
        self._counts: dict[RoleName, RoleCounts] = defaultdict(RoleCounts)
        self._largest: list[Tensor] = []
        self._queries = 0

    def add(self, weights_HTS: Tensor, seen_TS: Tensor, right: Mapping[RoleName, Tensor]) -> None:
        """Add the attention weights of one sentence.

        `seen_TS` is a mask of the keys to use, e.g. all but the end token. `right` has, for each role, a mask [T, S] of
        the keys that the role predicts; positional roles are always counted and need no mask.
        """
        judged_T = seen_TS.sum(-1) > 1
        maxima_HT = weights_HTS.masked_fill(~seen_TS, -1.0).argmax(-1)  # among the keys of `seen_TS`; 0 if none
        queries_T, keys_S = (torch.arange(size, device=seen_TS.device) for size in seen_TS.shape)
        offsets_TS = keys_S - queries_T[:, None]
        positions = {RoleName("positional", f"{offset:+d}"): offsets_TS == offset for offset in OFFSETS}
        for role, right_TS in (positions | dict(right)).items():
            self._counts[role].add(maxima_HT, seen_TS, right_TS)
        largest_HT = weights_HTS.gather(-1, maxima_HT[..., None])[..., 0]
        self._largest.append(largest_HT[:, judged_T].sum(-1).double())
        self._queries += int(judged_T.sum())

    def confidence(self) -> Tensor:
        """For each head [H], the mean over queries of its largest weight (the "confidence" of Voita et al. 2019)."""
        return torch.stack(self._largest).sum(0) / max(self._queries, 1)

    def evidence(self) -> dict[RoleName, list[Evidence]]:
        """For each role, the evidence that each head has it; without roles that no query could test."""
        return {role: counts.evidence(role.kind) for role, counts in self._counts.items() if counts.trials}

    def roles(self) -> list[tuple[Role, ...]]:
        """For each head, its roles, the clearest first: by (lower end of the confidence interval) - baseline."""
        roles: list[list[Role]] = [[] for _ in self._largest[0]] if self._largest else []
        for role, heads in self.evidence().items():
            counts = self._counts[role]
            common = role.kind != "positional" or counts.count >= COMMON * self._queries
            if not common or len(counts.trials) < FEWEST_SENTENCES:
                continue
            for head, evidence in enumerate(heads):
                if has_role(role.kind, evidence):
                    roles[head].append(Role(role.kind, role.name, evidence))
        return [tuple(sorted(of, key=lambda role: role.evidence.baseline - role.evidence.low)) for of in roles]


def has_role(kind: Kind, evidence: Evidence) -> bool:
    """Whether the evidence of a head reaches the thresholds of this kind of role (table at the top of this file)."""
    if kind == "positional":
        return evidence.share >= POSITIONAL_SHARE and evidence.low > evidence.baseline
    if kind == "rare":
        return evidence.low >= MOST and evidence.low >= TIMES_BASELINE * evidence.baseline
    over = evidence.low >= evidence.baseline + OVER_BASELINE
    return over and (kind == "syntactic" or evidence.share >= MOST)


def interval(hits_N: Tensor, trials_N: Tensor) -> tuple[float, float]:
    """The lower and upper end of the 95 % confidence interval (Wilson 1927) of the share of hits in N sentences.

    `hits_N` and `trials_N` are the numbers of hits and of tested queries of each sentence. If the share of hits differs
    between sentences more than by chance, the interval is wider.
    """
    total = float(trials_N.sum())
    share = float(hits_N.sum()) / total
    expected_variance = share * (1 - share) / total
    if expected_variance:
        scatter = float((hits_N - share * trials_N).square().sum()) / total**2
        total /= max(scatter / expected_variance, 1.0)
    else:
        total = len(trials_N)  # all hits or none: each sentence counts once
    square = NORMAL_95**2 / total
    middle = (share + square / 2) / (1 + square)
    reach = NORMAL_95 / (1 + square) * math.sqrt(share * (1 - share) / total + square / 4 / total)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# Importance


@torch.no_grad()
def count_heads(model: Seq2Seq, batch: PairBatch) -> dict[str, int]:
    """Number of heads of each attention layer, by its name, in the order of the layers; runs the model on `batch`."""
    with trace(model) as tape:
        model.hidden(batch.source, batch.target_input_BT)
    return {name: seen.weights_BHTS.shape[1] for name, seen in tape.items()}


@torch.no_grad()
def importance_by_ablation(
    model: Seq2Seq, batches: Sequence[PairBatch], log: Callable[[str], None] = lambda doing: None
) -> dict[str, Tensor]:
    """For each attention layer, the increase [H] of the loss per token when one head is removed.

    `log` is called with a progress message for each head. Cost: one pass over all batches per head.
    """
    whole = _loss_per_token(model, batches)
    rises = {name: torch.empty(heads) for name, heads in count_heads(model, batches[0]).items()}
    for name, rise_H in rises.items():
        for head in range(len(rise_H)):
            log(f"{name} without head {head}")
            with listen(model, name, without_heads(head)):
                rise_H[head] = _loss_per_token(model, batches) - whole
    return rises


def importance_by_gradient(model: Seq2Seq, batches: Iterable[PairBatch]) -> dict[str, Tensor]:
    """For each attention layer, the mean over sentences of |d loss / d gate| for each of its heads [H].

    A gate is a factor of 1 on the output of a head, and the loss is the loss per token of a sentence (Michel et al.
    2019).
    """
    sums: dict[str, Tensor] = {}
    sentences = 0
    for batch in batches:
        gates: dict[str, Tensor] = {}

        def gate(name: str, weights_BHTS: Tensor, gates: dict[str, Tensor] = gates) -> Tensor:
            if name not in gates:  # a recurrent decoder calls this once per token
                gates[name] = weights_BHTS.new_ones(weights_BHTS.shape[:2], requires_grad=True)
            return weights_BHTS * gates[name][..., None, None]

        with torch.enable_grad(), listen(model, "*", gate):
            loss_B = sentence_losses(model, batch) / batch.target_mask_BT.sum(1)
            slopes = torch.autograd.grad(loss_B.sum(), list(gates.values()))
        for name, slope_BH in zip(gates, slopes, strict=True):
            sums[name] = sums.get(name, 0.0) + slope_BH.abs().sum(0)
        sentences += len(loss_B)
    return {name: sum_H / sentences for name, sum_H in sums.items()}


def _loss_per_token(model: Seq2Seq, batches: Iterable[PairBatch]) -> float:
    total, tokens = 0.0, 0
    for batch in batches:
        total += float(sentence_losses(model, batch).double().sum())
        tokens += int(batch.target_mask_BT.sum())
    return total / tokens
