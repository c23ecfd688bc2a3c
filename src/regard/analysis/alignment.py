"""Word alignment: links from attention weights, alignment error rate, and the choice of the heads that align best.

A map [T, S] relates each target word to each source word: the weights of a head, an average of heads, an attribution.
A link is a pair of indices (source word, target word), starting at 0.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from regard.errors import ModelError, RunError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.analysis.trace import TraceSide


Links = tuple[tuple[int, int], ...]
"""Pairs (source word, target word), sorted."""
_LinkSet = set[tuple[int, int]]
Rule = Literal["cover", "target", "source", "both", "either", "grow"]
"""How the strongest links of both directions are combined; see `align`."""
RULES: tuple[Rule, ...] = get_args(Rule)


# ---------------------------------------------------------------------------------------------------------------------
# Links from a map


def align(weights_TS: Tensor, rule: Rule = "cover", *, backward_ST: Tensor | None = None) -> Links:
    """Align words: return links (source word, target word) chosen by `rule` from attention weights.

    Set 1 links each target word to the source word with the largest weight, set 2 each source word to the target word
    with the largest weight. A word whose weights are all zero gets no link. The rule "target" takes set 1, "source" set
    2, "both" the intersection of the two sets, "either" their union. "grow" is grow-diag-final-and (Koehn et al. 2003).
    "cover" takes set 2, and for target words that set 2 does not link, the links of set 1. `backward_ST` has the
    weights of a model that translates in the other direction; if given, set 2 is made from `backward_ST`.
    """
    return _combine(_strongest(weights_TS), _strongest(weights_TS.t() if backward_ST is None else backward_ST), rule)


def _strongest(weights_XY: Tensor) -> _LinkSet:
    """Return, for each row that has a positive weight, the pair (row, column of the largest weight in this row)."""
    if not weights_XY.numel():
        return set()
    top = weights_XY.max(-1)
    pairs = zip(top.values.tolist(), top.indices.tolist(), strict=True)
    return {(x, y) for x, (weight, y) in enumerate(pairs) if weight > 0}


def _combine(by_target: _LinkSet, by_source: _LinkSet, rule: Rule) -> Links:
    """Combine two sets of word pairs to the links of `rule` (the rules are described in `align`).

    `by_target` has pairs (target word, its strongest source word), `by_source` has pairs (source word, its strongest
    target word).
    """
    of_target = {(s, t) for t, s in by_target}
    if rule == "target":
        found = of_target
    elif rule == "source":
        found = by_source
    elif rule == "both":
        found = of_target & by_source
    elif rule == "either":
        found = of_target | by_source
    elif rule == "grow":
        found = _grow(of_target, by_source)
    else:
        reached = {t for _, t in by_source}
        found = by_source | {(s, t) for s, t in of_target if t not in reached}
    return tuple(sorted(found))


def _grow(one: _LinkSet, other: _LinkSet) -> _LinkSet:
    """Grow-diag-final-and: the intersection of two sets of links, extended by some links of their union.

    First, links of the union that are adjacent to a chosen link, also diagonally, are added if their source word or
    their target word has no link yet. Then, links of the union are added if neither of their two words has a link.
    """
    either, found = one | other, one & other
    sources, targets = {s for s, _ in found}, {t for _, t in found}

    def add(link: tuple[int, int]) -> None:
        found.add(link)
        sources.add(link[0])
        targets.add(link[1])

    waiting = sorted(found)
    while waiting:
        s, t = waiting.pop(0)
        for near in ((s + i, t + j) for i in (-1, 0, 1) for j in (-1, 0, 1)):
            if near in either - found and (near[0] not in sources or near[1] not in targets):
                add(near)
                waiting.append(near)
    for link in (*sorted(one), *sorted(other)):
        if link[0] not in sources and link[1] not in targets:
            add(link)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Maps between words


def word_map(weights_HTS: Tensor, source: TraceSide, target: TraceSide, *, shift: bool = False) -> Tensor:
    """Convert attention weights of H heads between tokens to weights [H, T, S] between words, without the end tokens.

    `source` and `target` tell which tokens form a word: rows of a target word are averaged, columns of a source word
    summed. Target token t gets the weights of the step that predicts token t. With `shift`, token t gets the weights of
    the next step, in which the decoder reads token t. In deep models the weights of the next step often align better
    (Zenkel et al. 2019, Chen et al. 2020).

    A weight between a punctuation mark and a word becomes zero if the sentence of the word also has punctuation marks.
    """
    if shift:
        weights_HTS = weights_HTS.roll(-1, -2)  # the first row, now last, belongs to the end token and is removed
    merged = source.merge(target.merge(weights_HTS, -2, mean=True), -1, mean=False)[:, :-1, :-1]
    mark_S, mark_T = (
        merged.new_tensor([not any(map(str.isalnum, word)) for word in side.words[:-1]]).bool()
        for side in (source, target)
    )
    free_T, free_S = mark_T & ~mark_S.any(), mark_S & ~mark_T.any()
    return merged * ((mark_T[:, None] == mark_S) | free_T[:, None] | free_S).to(merged.dtype)


WordMaps = Mapping[str, "Tensor"]
"""Maps [H, T, S] between words (results of `word_map`), by the name of the attention."""


class Head(NamedTuple):
    """One attention head: the name of its attention layer, e.g. "decoder.2.cross", and its index in this layer."""

    attention: str
    number: int


def _all_heads(maps: WordMaps) -> tuple[Head, ...]:
    return tuple(Head(name, number) for name, x in maps.items() for number in range(len(x)))


@dataclass(frozen=True)
class AlignmentHeads:
    """Settings of word alignment: the heads to average (default: all), `shift` of `word_map`, and `rule` of `align`."""

    heads: tuple[Head, ...] = ()  # if empty, all cross-attention heads
    shift: bool = False
    rule: Rule = "cover"

    def map(self, maps: WordMaps) -> Tensor:
        """The average [T, S] of the weights of these heads; `maps` has the weights [H, T, S] by attention layer."""
        heads = self.heads or _all_heads(maps)
        for name, number in heads:
            if name not in maps or not 0 <= number < len(maps[name]):
                raise ModelError(
                    f"the model has no head {number} in {name}, which the alignment settings of this run use; "
                    "run regard heads --choose-alignment again"
                )
        return reduce(operator.add, (maps[name][number] for name, number in heads)) / len(heads)

    def as_dict(self) -> dict[str, Any]:
        """The settings as values for JSON; they are stored in card.json in the folder of a run."""
        return vars(self) | {"heads": [list(head) for head in self.heads]}


def read_choice(stored: Any, where: str) -> AlignmentHeads:
    """Build `AlignmentHeads` from `stored`, the entry "alignment" of card.json; None gives the default, all heads.

    `where` is the path of card.json, for error messages.
    """
    if stored is None:
        return AlignmentHeads()
    try:
        heads = tuple(Head(str(name), int(number)) for name, number in stored["heads"])
        shift, rule = stored.get("shift", False), stored.get("rule", "cover")
    except (TypeError, ValueError, KeyError, AttributeError):
        raise RunError(
            f'{where}: "alignment" does not list heads as [name, number]; '
            "run regard heads --choose-alignment to write it again"
        ) from None
    if rule not in RULES or not isinstance(shift, bool):
        raise RunError(
            f'{where}: in "alignment", rule must be one of {", ".join(RULES)}, and shift must be true or false; '
            "run regard heads --choose-alignment to write it again"
        )
    return AlignmentHeads(heads, shift, rule)


# ---------------------------------------------------------------------------------------------------------------------
# Gold alignments, and scores against them


def read_gold(text: str) -> tuple[Links, Links]:
    """Parse one line of a gold alignment, and return its sure links and its possible links.

    "1-2" is a sure link, and therefore also possible; "1p2" and "1?2" are only possible.
    """
    sure, maybe = set(), set()
    for part in text.split():
        found = re.fullmatch(r"(\d+)([-p?])(\d+)", part, re.ASCII)
        if not found:
            raise ModelError(f'"{part}" is not a link; write links as 0-0 1-2: source word, then target word')
        link = int(found[1]), int(found[3])
        maybe.add(link)
        if found[2] == "-":
            sure.add(link)
    return tuple(sorted(sure)), tuple(sorted(maybe))


class AlignmentScores(NamedTuple):
    """Alignment error rate, precision and recall of word alignments (Och and Ney 2003)."""

    aer: float
    precision: float
    recall: float


def corpus_scores(
    found: Iterable[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> AlignmentScores:
    """Score the links `found` against gold links, counted over all sentence pairs (one item of each sequence per pair).

    Precision counts sure and possible links as correct, recall counts sure links only. Without `possible`, the sure
    links are the only possible links.
    """
    links = right = fair = wanted = 0
    for some, gold, more in zip(found, sure, sure if possible is None else possible, strict=True):
        links, wanted = links + len(set(some)), wanted + len(set(gold))
        right += len(set(some) & set(gold))
        fair += len(set(some) & (set(gold) | set(more)))
    return AlignmentScores(
        1 - (right + fair) / (links + wanted) if links + wanted else 0.0,
        fair / links if links else 1.0,
        right / wanted if wanted else 1.0,
    )


# ---------------------------------------------------------------------------------------------------------------------
# The heads that align best


class RankedHead(NamedTuple):
    """An entry of `best_heads`: settings of word alignment, a name to show, e.g. "all heads", and the scores."""

    name: str
    choice: AlignmentHeads
    scores: AlignmentScores


def best_heads(maps: Mapping[bool, Sequence[WordMaps]], gold: Sequence[Links]) -> list[RankedHead]:
    """Score each head, the average of each attention layer and the average of all heads, with every rule of `align`.

    The result is sorted by error rate, lowest first. `maps[False]` has the weights between words of each sentence pair
    (`word_map` of each attention layer), `maps[True]` the same with `shift`; `gold` has the sure links of each pair.
    To score a choice of heads on other data, use `score_choice`.
    """
    ranked = []
    for shift, pairs in maps.items():
        groups: dict[str, tuple[Head, ...]]
        groups = {f"{head.attention} head {head.number}": (head,) for head in _all_heads(pairs[0])}
        groups |= {f"{name} mean": _all_heads({name: x}) for name, x in pairs[0].items() if len(x) > 1}
        if len(pairs[0]) > 1:
            groups["all heads"] = _all_heads(pairs[0])
        for name, heads in groups.items():
            averages = [AlignmentHeads(heads).map(pair) for pair in pairs]
            strongest = [(_strongest(weights_TS), _strongest(weights_TS.t())) for weights_TS in averages]
            for rule in RULES:
                scores = corpus_scores((_combine(*links, rule) for links in strongest), gold)
                ranked.append(RankedHead(name, AlignmentHeads(heads, shift, rule), scores))
    return sorted(ranked, key=lambda entry: entry.scores.aer)


def score_choice(choice: AlignmentHeads, maps: Sequence[WordMaps], gold: Sequence[Links]) -> AlignmentScores:
    """Align sentence pairs with the settings `choice`, and score the links against `gold`, the sure links of each pair.

    `maps` has the weights between words of each pair; the caller must make them by `word_map` with shift=choice.shift.
    """
    return corpus_scores((align(choice.map(pair), choice.rule) for pair in maps), gold)


def choose_heads(maps: Mapping[bool, Sequence[WordMaps]], gold: Sequence[Links]) -> RankedHead:
    """Find a set of heads whose average aligns well; `maps` and `gold` are the same as for `best_heads`.

    Greedy search with the shift and the rule of the best entry of `best_heads`: the head that lowers the error rate
    most is added to the set, until no head lowers the error rate. If the best entry of `best_heads` has a lower error
    rate than the set, that entry is returned.
    """
    best = best_heads(maps, gold)[0]
    pairs = maps[best.choice.shift]
    chosen = RankedHead("chosen heads", replace(best.choice, heads=()), AlignmentScores(math.inf, 0.0, 0.0))
    while left := [head for head in _all_heads(pairs[0]) if head not in chosen.choice.heads]:
        choices = [replace(best.choice, heads=(*chosen.choice.heads, head)) for head in left]
        scored = [RankedHead("chosen heads", choice, score_choice(choice, pairs, gold)) for choice in choices]
        found = min(scored, key=lambda entry: entry.scores.aer)
        if found.scores.aer >= chosen.scores.aer:
            break
        chosen = found
    return min(chosen, best, key=lambda entry: entry.scores.aer)
