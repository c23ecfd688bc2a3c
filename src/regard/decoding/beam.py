"""Beam search: in each step, the W best hypotheses of each sentence are extended by one token. Also: search trees.

The score of a finished hypothesis is its log-probability divided by the length penalty, plus an optional penalty (0 or
negative) that depends on its decoder state. Finished sentences are removed when they are a tenth of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.decoding.constraints import Constraint, constrain
from regard.decoding.hypothesis import Hypothesis, Step, Tokens, Tree, follow_beams, keep_rows, top_sums
from regard.decoding.penalties import MEAN, LengthPenalty

Stop = Literal["exact", "beam-full"]
"""exact: the search of a sentence ends when no open hypothesis can become one of its `best` results (`BeamRules`).

beam-full: the search also ends when as many hypotheses have ended as the beam is wide.
"""

REMOVED_SHARE = 0.1
"""Finished sentences are removed when they are this share of the batch. Each removal copies all states."""


class OpenBeams(NamedTuple):
    """The open (unfinished) hypotheses of N sentences during a search, W per sentence, best first."""

    row_N: Tensor
    """Index of each of the N sentences in the batch that the search started with."""
    path_NWT: Tensor
    log_probs_NWT: Tensor
    total_NW: Tensor
    """Sum of the log-probabilities of each hypothesis; minus infinity in a place without a hypothesis."""

    @classmethod
    def first(cls, longest_B: Tensor) -> OpenBeams:
        """The open hypotheses at the start of a search: an empty one per sentence. `longest_B`: length limits."""
        total_B1 = torch.zeros(len(longest_B), 1, device=longest_B.device)
        row_B = torch.arange(len(longest_B), device=longest_B.device)
        return cls(row_B, row_B.new_empty(len(row_B), 1, 0), total_B1.new_empty(len(row_B), 1, 0), total_B1)

    @property
    def length(self) -> int:
        return self.path_NWT.shape[-1]


@dataclass
class FinishedBeams:
    """The best finished hypotheses of every sentence so far, at most W per sentence, best first."""

    score_BW: Tensor
    """Minus infinity in a place without a hypothesis."""
    length_BW: Tensor
    path_BWT: Tensor
    log_probs_BWT: Tensor
    count_B: Tensor
    """Number of hypotheses that have ended so far, including hypotheses that better hypotheses have replaced."""

    @classmethod
    def none(cls, longest_B: Tensor, width: int) -> FinishedBeams:
        """The finished hypotheses at the start of a search: none yet, but space for `width` of them per sentence."""
        count_B = torch.zeros(len(longest_B), dtype=torch.long, device=longest_B.device)
        score_BW = torch.full((len(count_B), width), -torch.inf, device=count_B.device)
        length_BW = torch.zeros_like(score_BW, dtype=torch.long)
        shape = (*score_BW.shape, 0)
        return cls(score_BW, length_BW, length_BW.new_zeros(shape), score_BW.new_zeros(shape), count_B)

    def add(self, row_N: Tensor, score_NC: Tensor, path_NCT: Tensor, log_probs_NCT: Tensor) -> None:
        """Add C finished hypotheses of equal length to each of the N sentences with the indices `row_N`.

        Only the best W of a sentence are kept. A score of minus infinity means that there is no hypothesis.
        """
        length = path_NCT.shape[-1]
        missing = length - self.path_BWT.shape[-1]
        self.path_BWT = nn.functional.pad(self.path_BWT, (0, missing))
        self.log_probs_BWT = nn.functional.pad(self.log_probs_BWT, (0, missing))
        pool = torch.cat([self.score_BW[row_N], score_NC], dim=1)
        self.score_BW[row_N], place_NW = pool.topk(self.score_BW.shape[1], dim=1)
        lengths = torch.cat([self.length_BW[row_N], torch.full_like(score_NC, length, dtype=torch.long)], dim=1)
        self.length_BW[row_N] = lengths.gather(1, place_NW)
        deep = place_NW[:, :, None].expand(-1, -1, length)
        self.path_BWT[row_N] = torch.cat([self.path_BWT[row_N], path_NCT], dim=1).gather(1, deep)
        self.log_probs_BWT[row_N] = torch.cat([self.log_probs_BWT[row_N], log_probs_NCT], dim=1).gather(1, deep)
        self.count_B[row_N] += score_NC.isfinite().sum(1)

    def hypotheses(self, end: int) -> list[list[Hypothesis]]:
        rows = zip(
            self.score_BW.tolist(), self.length_BW.tolist(), self.path_BWT.tolist(), self.log_probs_BWT.tolist(),
            strict=True,
        )  # fmt: skip
        return [
            [
                Hypothesis.of(path[:length], log_probs[:length], score, end)
                for score, length, path, log_probs in zip(*row, strict=True)
                if score > -torch.inf
            ]
            for row in rows
        ]


class Expansion(NamedTuple):
    """The C best continuations of each of N sentences; a continuation is an open hypothesis plus one token.

    `beam_NC`: index of the continued hypothesis. `token_NC`, `log_prob_NC`: the next token and its log-probability.
    `total_NC`: sum of the log-probabilities of all tokens.
    """

    beam_NC: Tensor
    token_NC: Tensor
    log_prob_NC: Tensor
    total_NC: Tensor

    def choose(self, place_NW: Tensor) -> Expansion:
        """Select W continuations of each sentence by their indices `place_NW`."""
        return Expansion(*(part.gather(1, place_NW) for part in self))

    def path(self, live: OpenBeams, count: int) -> tuple[Tensor, Tensor]:
        """All tokens [N, C, T] of the best C = `count` continuations, and the log-probability of each token.

        `live` are the open hypotheses that they continue.
        """
        beams = self.beam_NC[:, :count, None].expand(-1, -1, live.length)
        path = torch.cat([live.path_NWT.gather(1, beams), self.token_NC[:, :count, None]], dim=-1)
        log_probs = torch.cat([live.log_probs_NWT.gather(1, beams), self.log_prob_NC[:, :count, None]], dim=-1)
        return path, log_probs


class BeamState(NamedTuple):
    """What a beam search did in one step: continuations, their scores, and which of them stay open.

    `beam_search` passes it to its callback `watch`.
    """

    row_N: Tensor
    tried: Expansion
    score_NC: Tensor
    """Scores of the first W continuations in `tried`; minus infinity for a continuation that does not end here."""
    kept_NW: Tensor
    """Indices in `tried` of the hypotheses that stay open."""


class BeamRules(NamedTuple):
    """The settings of a beam search: beam width, length limits and penalty, stopping rule and others."""

    tokens: Tokens
    longest_B: Tensor
    width: int
    penalty: LengthPenalty
    stop: Stop
    best: int
    """With stop = "exact": a search ends when no open hypothesis can still become one of the first `best` results."""
    state_penalty: Callable[[Tree], Tensor] | None
    """`state_penalty(state)`, [N, W], 0 or negative, is added to the scores of hypotheses that end."""


def beam_search(
    step: Step,
    state: Tree,
    memory: Tree,
    longest_B: Tensor,
    tokens: Tokens,
    *,
    width: int = 5,
    penalty: LengthPenalty = MEAN,
    stop: Stop = "exact",
    best: int = 1,
    constraints: Sequence[Constraint] = (),
    state_penalty: Callable[[Tree], Tensor] | None = None,
    watch: Callable[[BeamState], None] | None = None,
) -> list[list[Hypothesis]]:
    """Find up to `width` finished hypotheses per sentence, best first; `longest_B` limits their lengths.

    `step(token_BW, state, memory)` returns logits and the next decoder state; `state` and `memory` are the initial
    state and the encoded source (models/base.py). `tokens` are the special tokens. With stop = "exact", the search of a
    sentence ends when no open hypothesis can still become one of its first `best` results; with "beam-full", also when
    `width` hypotheses have ended. `state_penalty(state)`, 0 or negative, is added to the scores of hypotheses that end.
    `watch` is called after every step.
    """
    rules = BeamRules(tokens, longest_B, width, penalty, stop, best, state_penalty)
    live, finished = OpenBeams.first(longest_B), FinishedBeams.none(longest_B, width)
    token_NW = torch.full((len(longest_B), 1), tokens.start, device=longest_B.device)
    while True:
        logits_NWV, state = step(token_NW, state, memory)
        log_probs_NWV = constrain(constraints, tokens.log_probs(logits_NWV), live.path_NWT, live.row_N, tokens.end)
        tried = expand(log_probs_NWV, live.total_NW, 2 * width)
        score_NC = retire(tried, live, finished, rules, state)
        kept_NW, beams_NW, after = select(tried, live, tokens.end, width)
        if watch is not None:
            watch(BeamState(live.row_N, tried, score_NC, kept_NW))
        going_N = unfinished(after, finished, rules)
        if not going_N.any():
            return finished.hypotheses(tokens.end)
        rest = going_N.nonzero()[:, 0]
        if len(rest) > (1 - REMOVED_SHARE) * len(going_N):
            live = after._replace(total_NW=after.total_NW.masked_fill(~going_N[:, None], -torch.inf))
        else:
            live, beams_NW = OpenBeams(*(part[rest] for part in after)), beams_NW[rest]
            state, memory = keep_rows(state, rest), keep_rows(memory, rest)
        state = follow_beams(state, beams_NW)
        token_NW = live.path_NWT[:, :, -1]


def expand(log_probs_NWV: Tensor, total_NW: Tensor, candidates: int) -> Expansion:
    """Find the `candidates` best continuations of each sentence by one token, over all its open hypotheses.

    `total_NW`: sum of the log-probabilities of each open hypothesis.
    """
    width, words = log_probs_NWV.shape[1:]
    total_NC, place_NC = top_sums(total_NW, log_probs_NWV, min(candidates, width * words))
    return Expansion(place_NC // words, place_NC % words, log_probs_NWV.flatten(1).gather(1, place_NC), total_NC)


def retire(tried: Expansion, live: OpenBeams, finished: FinishedBeams, rules: BeamRules, state: Tree) -> Tensor:
    """Add those of the W best continuations that end, or reach the length limit, to `finished`.

    `live` are the open hypotheses that `tried` continues; `state` is the decoder state. Returns the scores [N, W] of
    the W continuations; minus infinity for those that do not end.
    """
    length, width = live.length + 1, rules.width
    at_limit_N = length >= rules.longest_B[live.row_N]
    ends_NC = (tried.token_NC[:, :width] == rules.tokens.end) | at_limit_N[:, None]
    score_NC = (tried.total_NC[:, :width] / rules.penalty.divisor(length)).masked_fill(~ends_NC, -torch.inf)
    if ends_NC.any():
        if rules.state_penalty is not None:
            score_NC = score_NC + rules.state_penalty(state).gather(1, tried.beam_NC[:, :width])
        finished.add(live.row_N, score_NC, *tried.path(live, width))
    return score_NC


def select(tried: Expansion, live: OpenBeams, end: int, width: int) -> tuple[Tensor, Tensor, OpenBeams]:
    """Select the best `width` continuations in `tried` that do not end with the token `end`.

    Returns their indices in `tried`, the indices of the hypotheses in `live` that they continue, and the new open
    hypotheses.
    """
    open_NC = tried.total_NC.masked_fill(tried.token_NC == end, -torch.inf)
    total_NW, kept_NW = open_NC.topk(min(width, open_NC.shape[1]), dim=-1)
    chosen = tried.choose(kept_NW)
    return kept_NW, chosen.beam_NC, OpenBeams(live.row_N, *chosen.path(live, total_NW.shape[1]), total_NW)


def unfinished(live: OpenBeams, finished: FinishedBeams, rules: BeamRules) -> Tensor:
    """Mask [N] of the sentences whose search goes on: below the length limit, and `rules.stop` does not end it."""
    longest_N = rules.longest_B[live.row_N]
    reachable_N = rules.penalty.reachable(live.total_NW[:, 0], live.length, longest_N)
    going_N = (live.length < longest_N) & (reachable_N > finished.score_BW[live.row_N, rules.best - 1])
    if rules.stop == "beam-full" or rules.width == 1:  # a beam of one ends like greedy search
        going_N &= finished.count_B[live.row_N] < rules.width
    return going_N


# ---------------------------------------------------------------------------------------------------------------------
# The search tree: a record of a beam search as plain data


@dataclass(frozen=True)
class SearchNode:
    """A node of a search tree: one token that the beam search tried as the continuation of a hypothesis."""

    id: int
    parent: int
    """Id of the node that this node continues; -1 for the first token."""
    step: int
    token: str
    log_prob: float
    total: float
    """Log-probability of all tokens up to this one."""
    fate: Literal["kept", "finished", "dropped"]
    score: float | None = None
    """The score of a finished hypothesis; None if the hypothesis is not finished."""


@dataclass(frozen=True)
class SearchTree:
    """A record of the beam search of one sentence: all tokens that were tried, in the order of the steps."""

    nodes: tuple[SearchNode, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def search_trees(states: Sequence[BeamState], sentences: int, name: Callable[[int], str]) -> list[SearchTree]:
    """Build one search tree per sentence from `states`, the `BeamState` of every step of a beam search.

    `sentences` is the number of sentences; `name(token)` returns the text of a token id.
    """
    nodes: list[list[SearchNode]] = [[] for _ in range(sentences)]
    living = [[-1] for _ in range(sentences)]  # the last node of each open hypothesis
    for step, state in enumerate(states):
        columns = (state.row_N, *state.tried, state.score_NC, state.kept_NW)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for row, beams, tokens, log_probs, totals, scores, kept in rows:
            first = len(nodes[row])
            ended = {place: score for place, score in enumerate(scores) if score > -torch.inf}
            for place, (beam, token, *numbers) in enumerate(zip(beams, tokens, log_probs, totals, strict=True)):
                fate = "finished" if place in ended else "kept" if place in kept else "dropped"
                values = (living[row][beam], step, name(token), *numbers, fate, ended.get(place))
                nodes[row].append(SearchNode(first + place, *values))
            living[row] = [first + place for place in kept]
    return [SearchTree(tuple(node for node in found if node.total > -torch.inf)) for found in nodes]
