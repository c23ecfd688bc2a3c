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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.hooks import listen, trace, without_heads
from regard.models.base import Seq2Seq, Source

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


class HeadLook(NamedTuple):
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
class RoleCounts:
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


class HeadStatistics:
    """The heads of attentions that share queries and keys, watched over many sentences."""

    def __init__(self) -> None:
        self._tallies: dict[HeadLook, RoleCounts] = defaultdict(RoleCounts)
        self._largest: list[Tensor] = []
        self._queries = 0

    def add(self, weights_HTS: Tensor, seen_TS: Tensor, right: Mapping[HeadLook, Tensor]) -> None:
        """One sentence. `seen_TS`: the keys that a query is judged by, e.g. not the end token; `right`: what to hit."""
        judged_T = seen_TS.sum(-1) > 1
        maxima_HT = find_maxima(weights_HTS, seen_TS)
        positions = {HeadLook("positional", f"{offset:+d}"): at_offset(seen_TS, offset) for offset in OFFSETS}
        for look, right_TS in (positions | dict(right)).items():
            self._tallies[look].add(maxima_HT, seen_TS, right_TS)
        largest_HT = weights_HTS.gather(-1, maxima_HT[..., None])[..., 0]
        self._largest.append(largest_HT[:, judged_T].sum(-1).double())
        self._queries += int(judged_T.sum())

    def confidence(self) -> Tensor:
        """Mean [H] of the largest weight, as Voita et al. define how confident a head is."""
        return torch.stack(self._largest).sum(0) / max(self._queries, 1)

    def evidence(self) -> dict[HeadLook, list[Evidence]]:
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

    def _can_be_a_role(self, look: HeadLook) -> bool:
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


# How much a head matters, over many sentences: what the loss says when the head is gone, and what its slope says.
#
# By ablation: the loss a token without the head, less the loss with all heads. By gradient: Michel et al. 2019, "Are
# Sixteen Heads Really Better than One?", E |d loss / d gate| for a gate of 1 on the head's output, one gate a
# sentence.
# Both step in at the taps, so they serve every architecture that has attention.


class PairBatches(Protocol):
    """A batch of sentence pairs."""

    @property
    def source(self) -> Source:
        """What the encoder reads."""

    @property
    def target_input_BT(self) -> Tensor:
        """What the decoder reads."""

    @property
    def target_output_BT(self) -> Tensor:
        """What it is to write."""

    @property
    def target_mask_BT(self) -> Tensor:
        """True where input and output are real."""


@torch.no_grad()
def count_heads(model: Seq2Seq, batch: PairBatches) -> dict[str, int]:
    """How many heads each attention has, in the order of the layers."""
    with trace(model) as tape:
        model.hidden(batch.source, batch.target_input_BT)
    return {name: seen.weights_BHTS.shape[1] for name, seen in tape.items()}


@torch.no_grad()
def importance_by_ablation(
    model: Seq2Seq, batches: Sequence[PairBatches], log: Callable[[str], None] = lambda doing: None
) -> dict[str, Tensor]:
    """For each attention the rise [H] of the loss a token when the weights of one head are set to zero.

    It takes a pass over the batches for each head; `tell` hears whose turn it is.
    """
    whole = _loss_a_token(model, batches)
    rises = {}
    for name, heads in count_heads(model, batches[0]).items():
        rise_H = torch.empty(heads)
        for head in range(heads):
            log(f"{name} without head {head}")
            with listen(model, name, without_heads(head)):
                rise_H[head] = _loss_a_token(model, batches) - whole
        rises[name] = rise_H
    return rises


def importance_by_gradient(model: Seq2Seq, batches: Iterable[PairBatches]) -> dict[str, Tensor]:
    """For each attention the mean [H] over sentences of |d loss / d gate|; the loss of a sentence is a token's mean."""
    sums: dict[str, Tensor] = {}
    sentences = 0
    for batch in batches:
        gates: dict[str, Tensor] = {}

        def gate(name: str, weights_BHTS: Tensor, gates: dict[str, Tensor] = gates) -> Tensor:
            if name not in gates:  # a recurrent decoder passes once a token
                gates[name] = weights_BHTS.new_ones(weights_BHTS.shape[:2], requires_grad=True)
            return weights_BHTS * gates[name][..., None, None]

        with torch.enable_grad(), listen(model, "*", gate):
            loss_B = sentence_losses(model, batch) / batch.target_mask_BT.sum(1)
            slopes = torch.autograd.grad(loss_B.sum(), list(gates.values()))
        for name, slope_BH in zip(gates, slopes, strict=True):
            sums[name] = sums.get(name, 0.0) + slope_BH.abs().sum(0)
        sentences += len(loss_B)
    return {name: sum_H / sentences for name, sum_H in sums.items()}


def sentence_losses(model: Seq2Seq, batch: PairBatches) -> Tensor:
    """Negative log-likelihood [B] of each target, summed over its tokens."""
    real_BT = batch.target_mask_BT
    logits_NV = model.output(model.hidden(batch.source, batch.target_input_BT)[real_BT])
    surprise_N = F.cross_entropy(logits_NV, batch.target_output_BT[real_BT], reduction="none")
    return surprise_N.new_zeros(len(real_BT)).index_add(0, real_BT.nonzero()[:, 0], surprise_N)


def _loss_a_token(model: Seq2Seq, batches: Iterable[PairBatches]) -> float:
    total, tokens = 0.0, 0
    for batch in batches:
        total += float(sentence_losses(model, batch).double().sum())
        tokens += int(batch.target_mask_BT.sum())
    return total / tokens
