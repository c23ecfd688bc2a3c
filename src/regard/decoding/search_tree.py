"""A record of a beam search as plain data: every continuation that was considered, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from regard.decoding.beam import BeamState

Outcome = Literal["kept", "finished", "dropped"]


@dataclass(frozen=True)
class SearchNode:
    """One continuation. `total` is its log-probability so far; `score` is given if it ended."""

    id: int
    parent: int
    """The node that it continues; -1: the start of the sentence."""
    step: int
    token: str
    log_prob: float
    total: float
    fate: Outcome
    score: float | None = None


@dataclass(frozen=True)
class SearchTree:
    """The search for one sentence, in the order of its steps."""

    nodes: tuple[SearchNode, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass
class SearchTreeRecorder:
    """Pass `record` to `beam_search` as `watch`; `trees` then returns one tree per sentence."""

    sentences: int
    states: list[BeamState] = field(default_factory=list)

    def record(self, state: BeamState) -> None:
        """Keep one step."""
        self.states.append(state)

    def trees(self, name: Callable[[int], str]) -> list[SearchTree]:
        """The trees; `name` gives the text of a token."""
        nodes: list[list[SearchNode]] = [[] for _ in range(self.sentences)]
        living = [[-1] for _ in range(self.sentences)]  # the last node of each open hypothesis
        for step, state in enumerate(self.states):
            tried = state.tried
            columns = (state.row_N, tried.beam_NC, tried.token_NC, tried.log_prob_NC, tried.total_NC)
            rows = zip(*(column.tolist() for column in (*columns, state.score_NC, state.kept_NW)), strict=True)
            for row, beams, tokens, log_probs, totals, scores, kept in rows:
                grown = _grow(len(nodes[row]), step, living[row], name, beams, tokens, log_probs, totals, scores, kept)
                living[row] = [len(nodes[row]) + place for place in kept]
                nodes[row] += grown
        return [SearchTree(tuple(node for node in found if node.total > -float("inf"))) for found in nodes]


def _grow(
    first: int,
    step: int,
    living: Sequence[int],
    name: Callable[[int], str],
    beams: list[int],
    tokens: list[int],
    log_probs: list[float],
    totals: list[float],
    scores: list[float],
    kept: list[int],
) -> list[SearchNode]:
    """The nodes of one step of one sentence, best first."""
    ended = {place: score for place, score in enumerate(scores) if score > -float("inf")}
    made = []
    for place, (beam, token, log_prob, total) in enumerate(zip(beams, tokens, log_probs, totals, strict=True)):
        fate: Outcome = "finished" if place in ended else "kept" if place in kept else "dropped"
        parent = living[beam]
        made.append(SearchNode(first + place, parent, step, name(token), log_prob, total, fate, ended.get(place)))
    return made
