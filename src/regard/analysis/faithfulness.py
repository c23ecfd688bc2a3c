"""Faithfulness of explanations: how the probability of a target word changes when important source words are removed.

Deletion: source words are removed one by one, the most important first; the log-probability of the target word should
decrease early (Samek et al. 2017; "comprehensiveness" in DeYoung et al. 2020). Sufficiency: only the most important
words are kept; the decrease should be small. Both are areas under the curve of the decrease, in nats, over the share of
removed or kept words from 0 to 1; both end points are the same for all methods. Agreement: whether the top word is
linked in a gold alignment (precision at 1), and how often a linked word ranks above an unlinked word (AUC).

All figures are means over sentences with 95 % bootstrap intervals. Differences are taken per sentence, so that the
difficulty of sentences cancels out. With the removal "delete", a removed word is deleted from the sentence; this favors
no method, because no method deletes words. With "blank", the embedding of the word becomes zero, as in occlusion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.analysis.alignment import Links
from regard.analysis.attribution import (
    METHODS,
    EmbeddedInput,
    SourceTokens,
    TokenPair,
    attribute,
    embed,
    embed_absent,
    in_chunks,
    log_probs,
    output_log_probs,
)
from regard.analysis.trace import TraceSide
from regard.errors import ModelError
from regard.models.base import Seq2Seq

RANDOM, REFERENCE = "random", "attention"
GRID = 11  # number of shares of words, from 0 to 1, at which curves of different sentences are averaged
DRAWS = 2000  # number of bootstrap samples

Ways = Mapping[str, tuple[str, Mapping[str, Any]]]
"""The explanations to compare: for each name in the table, a method of METHODS and the options of this method."""
EVERY_WAY: Ways = {method: (method, {}) for method in METHODS}


@dataclass(frozen=True)
class ExplainedPair:
    """A sentence pair to explain: tokens, words (the end token last on both sides), and gold alignment if known."""

    pair: TokenPair
    source: TraceSide
    target: TraceSide
    links: Links = ()


# ---------------------------------------------------------------------------------------------------------------------
# One sentence


def kept_words(scores_TS: Tensor) -> Tensor:
    """Masks [2, T, S + 1, S] of the source words to keep, for each target word and each number k = 0, ..., S.

    Mask 0 keeps all words except the k words with the highest scores for this target word; mask 1 keeps only these k.
    """
    rank_TS = scores_TS.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    steps_K1 = torch.arange(scores_TS.shape[1] + 1).unsqueeze(-1)
    left_TKS = rank_TS.unsqueeze(1) >= steps_K1
    return torch.stack([left_TKS, ~left_TKS])


def fall_curves(
    model: Seq2Seq, case: ExplainedPair, maps: Mapping[str, Tensor], removal: str = "delete"
) -> dict[str, Tensor]:
    """Compute the curves [2, T, S + 1] of deletion [0] and sufficiency [1] for one sentence pair, by name of a method.

    `maps` has, for each method, the importance [T, S] of source words for target words. A curve is the decrease of the
    log-probability of a target word if the k most important source words are removed, or only these are kept, for k =
    0, ..., S. `removal` is "delete" (remove the tokens of a word) or "blank" (set their embeddings to zero).
    """
    kept = torch.stack([kept_words(scores_TS) for scores_TS in maps.values()])  # [M, 2, T, K, S]
    sets_NS, place = kept.flatten(0, 3).unique(dim=0, return_inverse=True)
    log_prob_NT = word_log_probs(model, case, sets_NS, removal)
    word_T1 = torch.arange(kept.shape[2]).unsqueeze(-1)
    log_prob_M2TK = log_prob_NT[place.view(kept.shape[:4]), word_T1]
    fall_M2TK = log_prob_M2TK[:, :1, :, :1] - log_prob_M2TK  # deletion starts with the whole sentence
    return dict(zip(maps, fall_M2TK, strict=True))


@torch.no_grad()
def word_log_probs(model: Seq2Seq, case: ExplainedPair, kept_NS: Tensor, removal: str) -> Tensor:
    """Log-probability [N, T] of each target word if only some source words are read, for each of N masks `kept_NS`.

    `removal` of the other words is "delete" (remove their tokens) or "blank" (set their embeddings to zero). Cost: N
    forward passes, in batches.
    """
    if removal not in ("delete", "blank"):
        raise ModelError(f'faithfulness: removal must be "delete" or "blank", not "{removal}"')
    pair, found = case.pair, []
    tokens_NS = F.pad(kept_NS, (0, 1), value=True)[:, list(case.source.word_of)].to(pair.input_1T.device)
    for some_NS in in_chunks(tokens_NS, pair):
        if removal == "delete":
            order_NS = (~some_NS).int().argsort(dim=-1, stable=True)[:, : int(some_NS.sum(-1).max())]
            source = SourceTokens(pair.source.ids_BS[0][order_NS], some_NS.gather(-1, order_NS))
            found.append(output_log_probs(model(source, pair.input_1T.expand(len(some_NS), -1)), pair.output_1T))
        else:
            read, absent = embed(model, pair), embed_absent(model, pair, None)
            source_NSD = torch.where(some_NS.unsqueeze(-1), read.source_NSD, absent.source_NSD)
            shortened = EmbeddedInput(source_NSD, read.target_NTD.expand(len(some_NS), -1, -1))
            found.append(log_probs(model, pair, shortened))
    return case.target.merge(torch.cat(found).cpu(), -1, mean=False)[:, :-1]


def area(curve_TK: Tensor) -> float:
    """Area under curves of K points, averaged over T target words; the x axis (share of source words) is 0 to 1."""
    return torch.trapezoid(curve_TK, dx=1 / (curve_TK.shape[1] - 1)).mean().item()


def on_grid(curve_TK: Tensor) -> Tensor:
    """Average the curves (K points each) of T target words, and interpolate to GRID equally spaced points."""
    last = curve_TK.shape[1] - 1
    place = torch.linspace(0, last, GRID)
    below = place.floor().long().clamp_max(last - 1)
    return torch.lerp(curve_TK[:, below], curve_TK[:, below + 1], place - below).mean(0)


def agreement(scores_TS: Tensor, links: Links) -> tuple[float, float]:
    """Precision at 1 and AUC of importance scores against a gold alignment, as means over the linked target words.

    Precision at 1: whether the source word with the highest score is linked to the target word. AUC: how often a linked
    source word has a higher score than an unlinked one; a tie counts as half, and target words that are linked to all
    source words are left out. NaN if no target word counts.
    """
    linked_TS = torch.zeros_like(scores_TS, dtype=torch.bool)
    for source, target in links:
        linked_TS[target, source] = True
    rows_T = linked_TS.any(-1)
    first_T1 = scores_TS.argmax(-1, keepdim=True)
    precision = linked_TS.gather(-1, first_T1)[rows_T].float().mean().item()
    above_TSS = (scores_TS.unsqueeze(-1) - scores_TS.unsqueeze(-2)).sign().add(1).div(2)
    pairs_TSS = linked_TS.unsqueeze(-1) & ~linked_TS.unsqueeze(-2)
    count_T = pairs_TSS.sum((-1, -2))
    won_T = (above_TSS * pairs_TSS).sum((-1, -2))
    return precision, (won_T / count_T)[count_T > 0].mean().item()


# ---------------------------------------------------------------------------------------------------------------------
# Many sentences


class MethodScore(NamedTuple):
    """The mean of a score over sentences, and the lower and upper end of its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(values: Sequence[float], seed: int) -> MethodScore | None:
    """The mean of `values` (one per sentence, NaN is ignored) and its 95 % bootstrap interval; None without values."""
    values_N = torch.tensor([value for value in values if not math.isnan(value)], dtype=torch.float64)
    if not len(values_N):
        return None
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(values_N), (DRAWS, len(values_N)), generator=generator)
    low, high = values_N[drawn].mean(-1).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return MethodScore(values_N.mean().item(), low, high)


class _SentenceScores(NamedTuple):
    """Scores of one method on one sentence pair. The method "random" has averages over its random orders."""

    deletion: float
    sufficiency: float
    precision: float
    auc: float
    deletion_curve: Tensor
    sufficiency_curve: Tensor


def _score_sentence(curves: Sequence[Tensor], maps: Sequence[Tensor], links: Links) -> _SentenceScores:
    sides = list(zip(*curves, strict=True))  # all deletion curves, all sufficiency curves
    numbers = [*(map(area, side) for side in sides), *zip(*(agreement(one, links) for one in maps), strict=True)]
    on_grids = (torch.stack(list(map(on_grid, side))).mean(0) for side in sides)
    return _SentenceScores(*(sum(values) / len(maps) for values in numbers), *on_grids)


@dataclass(frozen=True)
class MethodRank:
    """One row of the table of `Faithfulness`: the scores of one method over all sentences."""

    name: str
    deletion: MethodScore  # higher is better
    sufficiency: MethodScore  # lower is better
    deletion_gain: MethodScore | None  # difference from attention per sentence; higher is better in both gains
    sufficiency_gain: MethodScore | None
    precision: MethodScore | None
    auc: MethodScore | None
    deletion_curve: tuple[float, ...]  # decrease in nats when a share 0, 0.1, ..., 1 of the words is removed
    sufficiency_curve: tuple[float, ...]  # decrease in nats when only such a share is kept


@dataclass(frozen=True)
class Faithfulness:
    """The result of `measure_faithfulness`: one row per method, the largest area under the deletion curve first."""

    rows: tuple[MethodRank, ...]
    sentences: int
    removal: str
    seeds: int
    seed: int
    left_out: dict[str, str]  # methods that do not fit the model, with the reason

    def as_dict(self) -> dict[str, Any]:
        rows = [
            {key: value._asdict() if isinstance(value, MethodScore) else value for key, value in vars(row).items()}
            for row in self.rows
        ]
        return asdict(self) | {"rows": rows, "verdict": self.verdict}

    @property
    def verdict(self) -> str:
        """A sentence that says which methods have a larger, smaller or similar deletion area compared with attention.

        The comparison uses the 95 % interval of the difference.
        """
        gains = {row.name: row.deletion_gain for row in self.rows if row.deletion_gain and row.name != REFERENCE}
        if not gains:
            return f"Nothing was compared with {REFERENCE}."
        above = [name for name, gain in gains.items() if gain.low > 0]
        below = [name for name, gain in gains.items() if gain.high < 0]
        open_ = [name for name in gains if name not in above and name not in below]
        groups = {"above": above, "not significantly different from": open_, "below": below}
        parts = [f"{', '.join(names)} {said} {REFERENCE}" for said, names in groups.items() if names]
        return f"On the deletion curve: {'; '.join(parts)} (95 %, {self.sentences} sentences)."

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [
            ("", "deletion ↑", "over attention", "sufficiency ↓", "over attention", "precision at 1", "AUC")
        ]
        for row in self.rows:
            gains = row.deletion, row.deletion_gain, row.sufficiency, row.sufficiency_gain
            lines.append((row.name, *("-" if one is None else str(one) for one in (*gains, row.precision, row.auc))))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        left_out = [f"{name} was not measured: {reason}" for name, reason in self.left_out.items()]
        return "\n".join([*(line.rstrip() for line in table), self.verdict, *left_out])


def measure_faithfulness(
    model: Seq2Seq, cases: Sequence[ExplainedPair], ways: Ways = EVERY_WAY, *,
    removal: str = "delete", seeds: int = 5, seed: int = 1,
) -> Faithfulness:  # fmt: skip
    """Compare attribution methods with each other and with `seeds` random orders of words, over many sentences.

    `ways` are the methods to compare: a name in the table, and for each name a method of METHODS and its options.
    `removal` of words is "delete" (remove their tokens) or "blank" (set their embeddings to zero). Signed attributions
    rank words by value, not by absolute value. Cost: the cost of each method; also, for a sentence of S source and T
    target words, at most 2 T (S + 1) forward passes per method and per random order. Sets of words that several orders
    have in common are computed once.
    """
    measured: dict[str, list[_SentenceScores]] = {name: [] for name in (*ways, RANDOM)}
    left_out: dict[str, str] = {}
    cases = [case for case in cases if len(case.source.words) > 1 and len(case.target.words) > 1]
    if not cases:
        raise ModelError("faithfulness needs a sentence pair with words on both sides; add one to the input")
    for number, case in enumerate(cases):
        maps: dict[str, Tensor] = {}
        for name, (method, options) in ways.items():
            if name not in left_out:
                try:
                    attribution = attribute(model, *case.pair, method, **options).by_words(case.source, case.target)
                except ModelError as error:
                    if number:
                        raise
                    left_out[name] = str(error)
                else:
                    maps[name] = attribution.source_TS[:-1, :-1]  # without the end tokens
        shape = len(case.target.words) - 1, len(case.source.words) - 1
        # Seeded by the sentence, so that its random orders do not depend on the other sentences.
        draw = torch.Generator().manual_seed(seed * 1_000_003 + int(case.pair.source.ids_BS.sum()))
        chance = {f"{RANDOM} {n}": torch.rand(shape, generator=draw) for n in range(seeds)}
        curves = fall_curves(model, case, maps | chance, removal)
        for name, scores_TS in maps.items():
            measured[name].append(_score_sentence([curves[name]], [scores_TS], case.links))
        of_chance = [curves[name] for name in chance]
        measured[RANDOM].append(_score_sentence(of_chance, list(chance.values()), case.links))
    reference = measured.get(REFERENCE, [])
    rows = [_rank(name, sentences, reference, seed) for name, sentences in measured.items() if sentences]
    rows.sort(key=lambda row: -row.deletion.mean)
    return Faithfulness(tuple(rows), len(cases), removal, seeds, seed, left_out)


def _rank(
    name: str, sentences: Sequence[_SentenceScores], reference: Sequence[_SentenceScores], seed: int
) -> MethodRank:
    deletions, sufficiencies, precisions, aucs, *curves = zip(*sentences, strict=True)
    deletion, sufficiency = bootstrap(deletions, seed), bootstrap(sufficiencies, seed)
    assert deletion is not None  # there is a sentence, and areas are never NaN
    assert sufficiency is not None
    compared = [] if sentences is reference or not reference else list(zip(sentences, reference, strict=True))
    return MethodRank(
        name,
        deletion,
        sufficiency,
        bootstrap([one.deletion - other.deletion for one, other in compared], seed),
        bootstrap([other.sufficiency - one.sufficiency for one, other in compared], seed),
        bootstrap(precisions, seed),
        bootstrap(aucs, seed),
        *(tuple(torch.stack(of_sentences).mean(0).tolist()) for of_sentences in curves),
    )
