"""Diverse beam search (Vijayakumar et al. 2016): groups of hypotheses that differ from each other.

Each group is a beam search in which tokens of earlier groups at the same position are less likely (the paper's Hamming
diversity). A group depends only on earlier groups, so one group is searched after the other. The returned scores do not
contain the penalties.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.decoding.beam import BeamState, Stop, beam_search
from regard.decoding.constraints import Constraint
from regard.decoding.hypothesis import Hypothesis, Step, Tokens, Tree
from regard.decoding.penalties import MEAN, LengthPenalty


class DiversityPenalty:
    """A constraint that makes a token less likely if earlier groups of hypotheses have it at the same position."""

    def __init__(self, strength: float, end: int):
        """`strength` is subtracted from the log-probability of a token, once per earlier hypothesis with this token.

        Only the same position counts. The end token `end` is never made less likely.
        """
        self.strength, self.end = strength, end
        self._taken: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        self._kept: list[tuple[list[int], list[list[int]]]] = []

    def __call__(self, log_probs_NWV: Tensor, path_NWT: Tensor, row_N: Tensor) -> None:
        place = path_NWT.shape[-1]
        for index, row in enumerate(row_N.tolist()):
            for token, times in self._taken[row, place].items():
                log_probs_NWV[index, :, token] -= self.strength * times

    def watch(self, state: BeamState) -> None:
        """Record the last tokens of the hypotheses that stay open; `beam_search` calls it after every step."""
        kept = state.tried.choose(state.kept_NW)
        dead = kept.total_NC == -torch.inf  # there is no hypothesis
        self._kept.append((state.row_N.tolist(), kept.token_NC.masked_fill(dead, self.end).tolist()))

    def next_group(self) -> None:
        """From now on, also penalize the tokens of the group just searched; to be called after each group."""
        for place, (rows, tokens) in enumerate(self._kept):
            for row, chosen in zip(rows, tokens, strict=True):
                self._taken[row, place].update(token for token in chosen if token != self.end)
        self._kept.clear()

    def undo(self, row: int, found: Hypothesis, penalty: LengthPenalty) -> Hypothesis:
        """Return the hypothesis `found` of sentence `row` with log-probabilities and score without this penalty.

        `penalty` is the length penalty of the score. Call it before `next_group`.
        """
        own = [
            log_prob + self.strength * self._taken[row, place][token]
            for place, (token, log_prob) in enumerate(zip((*found.tokens, self.end), found.log_probs, strict=False))
        ]
        return replace(found, log_probs=tuple(own), score=penalty.score(own))


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
    penalty: LengthPenalty = MEAN,
    stop: Stop = "exact",
    constraints: Sequence[Constraint] = (),
) -> list[list[Hypothesis]]:
    """Find up to `width` different hypotheses per sentence, best first, by `groups` searches of width `width / groups`.

    A group is penalized by `strength` for each token that earlier groups have at the same position; the returned scores
    do not contain this. `start()` returns the initial decoder state; the other arguments are those of `beam_search`.
    """
    diversity, each = DiversityPenalty(strength, tokens.end), width // groups
    found: list[dict[tuple[int, ...], Hypothesis]] = [{} for _ in longest_B]
    for _ in range(groups):
        made = beam_search(
            step, start(), memory, longest_B, tokens, width=each, penalty=penalty, stop=stop, best=each,
            constraints=(*constraints, diversity), watch=diversity.watch,
        )  # fmt: skip
        for row, hypotheses in enumerate(made):
            for one in hypotheses:
                found[row].setdefault(one.tokens, diversity.undo(row, one, penalty))
        diversity.next_group()
    return [sorted(hypotheses.values(), key=lambda one: -one.score) for hypotheses in found]
