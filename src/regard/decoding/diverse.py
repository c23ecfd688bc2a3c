"""Diverse beam search (Vijayakumar et al. 2016): groups of hypotheses that keep out of each other's way.

A group is a beam search of its own, in which tokens that groups before it wrote at the same place are less likely
(their Hamming diversity). A group looks only at those before it, so they can be run one after the other, each to its
end, and the beam search need not know. Scores are the model's own again when all is done.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.decoding.beam import BeamState, Stop, beam_search
from regard.decoding.constraints import Constraint
from regard.decoding.hypothesis import Form, Hypothesis, LengthPenalty, Step, Tokens, Tree


class Diversity:
    """A constraint that remembers what groups wrote where, and makes it less likely for those that follow."""

    def __init__(self, strength: float, end: int):
        """`strength`: by how much the log-probability of a token falls for each hypothesis that has it there."""
        self.strength, self.end = strength, end
        self._taken: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        self._heard: list[tuple[list[int], list[list[int]]]] = []

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        place = path_NWT.shape[-1]
        for number, row in enumerate(row_N.tolist()):
            for token, times in self._taken[row, place].items():
                log_probs_NWV[number, :, token] -= self.strength * times

    def watch(self, moment: BeamState) -> None:
        """Hear which tokens go on, step by step, for the groups that follow. All may end where they like."""
        kept = moment.tried.choose(moment.kept_NW)
        dead = kept.total_NC == -torch.inf  # of a sentence that is done
        self._heard.append((moment.row_N.tolist(), kept.token_NC.masked_fill(dead, self.end).tolist()))

    def next_group(self) -> None:
        """The group is done."""
        for place, (rows, tokens) in enumerate(self._heard):
            for row, chosen in zip(rows, tokens, strict=True):
                self._taken[row, place].update(token for token in chosen if token != self.end)
        self._heard.clear()

    def undo(self, row: int, found: Hypothesis, scoring: LengthPenalty) -> Hypothesis:
        """A hypothesis of the present group with the model's own log-probabilities."""
        own = [
            log_prob + self.strength * self._taken[row, place][token]
            for place, (token, log_prob) in enumerate(zip((*found.tokens, self.end), found.log_probs, strict=False))
        ]
        return replace(found, log_probs=tuple(own), score=sum(own) / float(scoring.divisor(len(own))))


def diverse_beam_search(
    step: Step,
    start: Callable[[], Tree],
    memory: Tree,
    longest_B: Tensor,
    tokens: Tokens,
    *,
    width: int = 4,
    groups: int = 2,
    strength: float = 0.5,
    penalty: float = 1.0,
    form: Form = "plain",
    stop: Stop = "exact",
    constraints: Sequence[Constraint] = (),
) -> list[list[Hypothesis]]:
    """Up to `width` finished hypotheses for each sentence, all different, best first; `start` gives a fresh state."""
    diversity, scoring, each = Diversity(strength, tokens.end), LengthPenalty(penalty, form), width // groups
    found: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in longest_B]
    for _ in range(groups):
        made = beam_search(
            step, start(), memory, longest_B, tokens, width=each, penalty=penalty, form=form, stop=stop, best=each,
            constraints=(*constraints, diversity), watch=diversity.watch,
        )  # fmt: skip
        for row, hypotheses in enumerate(made):
            for one in hypotheses:
                found[row].setdefault(one.tokens, diversity.undo(row, one, scoring))
        diversity.next_group()
    return [sorted(there.values(), key=lambda one: -one.score) for there in found]
