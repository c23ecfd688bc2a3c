"""What heads do: the roles of Voita et al. 2019, "Analyzing Multi-Head Self-Attention".

Where a query's largest weight falls is compared with where it would fall if the head had a role:

    positional   at one offset from the query, in at least 90 % of the cases
    rare         at the least frequent token in sight, in most cases and far more often than by chance
    syntactic    at the other end of a relation, at least 10 points more often than the best fixed offset would hit it
    alignment    at a source word that the target word renders, likewise

A share of hits comes with an interval, and thresholds are put to its lower end, so that few sentences prove nothing.
Tokens of one sentence are not independent; the interval widens by as much as sentences differ more than chance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Kind = Literal["positional", "rare", "syntactic", "alignment"]

OFFSETS = range(-3, 4)
FARTHEST = 12  # offsets tried as a baseline, in both directions
POSITIONAL_SHARE = 0.9  # Voita et al., section 5.1
OVER_BASELINE = 0.1  # Voita et al., section 5.2
MOST = 0.5
TIMES_CHANCE = 2.0
COMMON = 0.5  # share of all queries that must have a token at an offset for it to be a role
FEWEST_SENTENCES = 20
NORMAL_95 = 1.96


class Look(NamedTuple):
    """What a head may be looking for: a kind of role and which one of its kind, e.g. "-1" or "subject → verb"."""

    kind: Kind
    name: str


@dataclass(frozen=True)
class Evidence:
    """How often a head's largest weight fell where the role says."""

    share: float
    baseline: float
    """The share that chance, or for relations the best fixed offset, would reach."""
    low: float
    """95 % interval of the share."""
    high: float
    count: int
    """Queries that could be judged."""


@dataclass(frozen=True)
class Role:
    """A role that a head has, and what speaks for it."""

    kind: Kind
    name: str
    evidence: Evidence


# ---------------------------------------------------------------------------------------------------------------------
# One sentence: weights [H, T, S], and which keys each query may be judged by [T, S]


def find_maxima(weights_HTS: Tensor, seen_TS: Tensor) -> Tensor:
    """Where each query looks most [H, T], among the keys that count; 0 where none does."""
    return weights_HTS.masked_fill(~seen_TS, -1.0).argmax(-1)


def at_offset(seen_TS: Tensor, offset: int) -> Tensor:
    """The keys that stand so many places after their query (before it: negative), where they are seen."""
    queries, keys = (torch.arange(size, device=seen_TS.device) for size in seen_TS.shape)
    return seen_TS & (keys[None, :] - queries[:, None] == offset)


def rarest(seen_TS: Tensor, frequency_S: Tensor) -> Tensor:
    """The least frequent of the keys that each query sees; all of them where several are equally rare."""
    frequency_TS = frequency_S.double().expand(seen_TS.shape).masked_fill(~seen_TS, math.inf)
    return seen_TS & (frequency_TS == frequency_TS.amin(-1, keepdim=True))


# ---------------------------------------------------------------------------------------------------------------------
# Many sentences


@dataclass
class Tally:
    """Hits of all heads on what one look is for, sentence by sentence."""

    hits: list[Tensor] = field(default_factory=list)
    trials: list[int] = field(default_factory=list)
    chance: float = 0.0
    """Hits that equal weights would make."""
    at_offsets: Tensor = field(default_factory=lambda: torch.zeros(2 * FARTHEST + 1, dtype=torch.long))
    """Hits that each fixed offset would make."""

    def add(self, maxima_HT: Tensor, seen_TS: Tensor, right_TS: Tensor) -> None:
        """Judge the queries that have a right key in sight, and a choice."""
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
        """Queries judged."""
        return sum(self.trials)

    def evidence(self, kind: Kind) -> list[Evidence]:
        """For each head."""
        if not self.trials:
            return []
        hits_NH, trials_N = torch.stack(self.hits).double().cpu(), torch.tensor(self.trials).double()
        baseline = self.chance / self.count
        if kind != "positional":
            baseline = max(baseline, float(self.at_offsets.max()) / self.count)
        shares = (hits_NH.sum(0) / trials_N.sum()).tolist()
        bounds = [interval(hits_N, trials_N) for hits_N in hits_NH.unbind(1)]
        return [Evidence(share, baseline, *ends, self.count) for share, ends in zip(shares, bounds, strict=True)]


class Survey:
    """The heads of attentions that share queries and keys, watched over many sentences."""

    def __init__(self) -> None:
        self._tallies: dict[Look, Tally] = defaultdict(Tally)
        self._largest: list[Tensor] = []
        self._queries = 0

    def add(self, weights_HTS: Tensor, seen_TS: Tensor, right: Mapping[Look, Tensor]) -> None:
        """One sentence. `seen_TS`: the keys that a query is judged by, e.g. not the end token; `right`: what to hit."""
        judged_T = seen_TS.sum(-1) > 1
        maxima_HT = find_maxima(weights_HTS, seen_TS)
        positions = {Look("positional", f"{offset:+d}"): at_offset(seen_TS, offset) for offset in OFFSETS}
        for look, right_TS in (positions | dict(right)).items():
            self._tallies[look].add(maxima_HT, seen_TS, right_TS)
        largest_HT = weights_HTS.gather(-1, maxima_HT[..., None])[..., 0]
        self._largest.append(largest_HT[:, judged_T].sum(-1).double())
        self._queries += int(judged_T.sum())

    def confidence(self) -> Tensor:
        """Mean [H] of the largest weight, as Voita et al. define how confident a head is."""
        return torch.stack(self._largest).sum(0) / max(self._queries, 1)

    def evidence(self) -> dict[Look, list[Evidence]]:
        """For each look that could be judged, what was found of each head."""
        found = {look: tally.evidence(look.kind) for look, tally in self._tallies.items()}
        return {look: heads for look, heads in found.items() if heads}

    def roles(self) -> list[tuple[Role, ...]]:
        """For each head the roles that it has, the one with the strongest evidence first."""
        roles: list[list[Role]] = [[] for _ in self._largest[0]] if self._largest else []
        for look, heads in self.evidence().items():
            if not self._can_be_a_role(look):
                continue
            for head, evidence in enumerate(heads):
                if has_role(look.kind, evidence):
                    roles[head].append(Role(look.kind, look.name, evidence))
        return [tuple(sorted(of, key=lambda role: role.evidence.baseline - role.evidence.low)) for of in roles]

    def _can_be_a_role(self, look: Look) -> bool:
        tally = self._tallies[look]
        common = look.kind != "positional" or tally.count >= COMMON * self._queries
        return common and len(tally.trials) >= FEWEST_SENTENCES


def has_role(kind: Kind, evidence: Evidence) -> bool:
    """Whether the evidence is enough, by the rules at the head of this file."""
    if kind == "positional":
        return evidence.share >= POSITIONAL_SHARE and evidence.low > evidence.baseline
    if kind == "rare":
        return evidence.low >= MOST and evidence.low >= TIMES_CHANCE * evidence.baseline
    over = evidence.low >= evidence.baseline + OVER_BASELINE
    return over and (kind == "syntactic" or evidence.share >= MOST)


def interval(hits_N: Tensor, trials_N: Tensor) -> tuple[float, float]:
    """95 % interval of a share of hits: Wilson's, with as many trials as the scatter between sentences leaves."""
    total = float(trials_N.sum())
    share = float(hits_N.sum()) / total
    by_chance = share * (1 - share) / total
    if by_chance:
        scatter = float((hits_N - share * trials_N).square().sum()) / total**2
        total /= max(scatter / by_chance, 1.0)
    else:
        total = len(trials_N)  # all or nothing: each sentence counts once
    square = NORMAL_95**2 / total
    middle = (share + square / 2) / (1 + square)
    reach = NORMAL_95 / (1 + square) * math.sqrt(share * (1 - share) / total + square / 4 / total)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)
