"""Beam search: the W best hypotheses, one token further at a time.

Scores are sums of log-probabilities divided by length ** penalty (Wu et al. 2016 without its constant). A sentence is
done once W hypotheses have ended, or when no open one can still beat the best. Sentences that are done leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.decoding.tree import Tree, follow_beams, keep_rows

Step = Callable[[Tensor, Tree, Tree], tuple[Tensor, Tree]]
"""step(token_BW, state, memory) -> (logits_BWV, state)"""


@dataclass(frozen=True)
class Tokens:
    """The special tokens that search must know."""

    start: int
    end: int
    never: tuple[int, ...] = ()
    """Tokens that no translation may hold: padding, the start and the unknown token."""

    def forbid(self, logits: Tensor) -> Tensor:
        """Scores with the forbidden tokens at minus infinity."""
        if not self.never:
            return logits
        return logits.index_fill(-1, torch.tensor(self.never, device=logits.device), -torch.inf)


@dataclass(frozen=True)
class Hypothesis:
    """One finished output: its tokens without the end token, their log-probabilities with it, and the score."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    score: float
    ended: bool
    """False when the length limit cut it off."""

    @classmethod
    def of(cls, path: list[int], log_probs: list[float], score: float, end: int) -> Hypothesis:
        """From a path that may end in the end token."""
        ended = path[-1] == end
        return cls(tuple(path[:-1] if ended else path), tuple(log_probs), score, ended)


@dataclass(frozen=True)
class Open:
    """The open hypotheses of the sentences still in the batch, best first."""

    row_N: Tensor
    path_NWT: Tensor
    log_probs_NWT: Tensor
    total_NW: Tensor

    @classmethod
    def first(cls, rows: int, device: torch.device) -> Open:
        """One empty hypothesis for each sentence."""
        return cls(
            torch.arange(rows, device=device),
            torch.empty(rows, 1, 0, dtype=torch.long, device=device),
            torch.empty(rows, 1, 0, device=device),
            torch.zeros(rows, 1, device=device),
        )

    def keep(self, rest: Tensor) -> Open:
        """Only these sentences."""
        return Open(self.row_N[rest], self.path_NWT[rest], self.log_probs_NWT[rest], self.total_NW[rest])


@dataclass
class Finished:
    """The best finished hypotheses of every sentence, best first; a score of minus infinity marks a free place."""

    score_BW: Tensor
    length_BW: Tensor
    path_BWT: Tensor
    log_probs_BWT: Tensor
    count_B: Tensor
    """How many have ended so far, those that fell out again included."""

    @classmethod
    def none(cls, rows: int, width: int, device: torch.device) -> Finished:
        """Nothing has ended yet."""
        return cls(
            torch.full((rows, width), -torch.inf, device=device),
            torch.zeros(rows, width, dtype=torch.long, device=device),
            torch.zeros(rows, width, 0, dtype=torch.long, device=device),
            torch.zeros(rows, width, 0, device=device),
            torch.zeros(rows, dtype=torch.long, device=device),
        )

    def add(self, row_N: Tensor, score_NC: Tensor, path_NCT: Tensor, log_probs_NCT: Tensor) -> None:
        """Let candidates of these sentences, all equally long, take the places of worse ones."""
        length = path_NCT.shape[-1]
        missing = length - self.path_BWT.shape[-1]
        self.path_BWT = nn.functional.pad(self.path_BWT, (0, missing))
        self.log_probs_BWT = nn.functional.pad(self.log_probs_BWT, (0, missing))
        width = self.score_BW.shape[1]
        pool = torch.cat([self.score_BW[row_N], score_NC], dim=1)
        self.score_BW[row_N], place_NW = pool.topk(width, dim=1)
        lengths = torch.cat(
            [self.length_BW[row_N], torch.full_like(place_NW[:, :1], length).expand_as(score_NC)], dim=1
        )
        self.length_BW[row_N] = lengths.gather(1, place_NW)
        deep = place_NW[:, :, None].expand(-1, -1, length)
        self.path_BWT[row_N] = torch.cat([self.path_BWT[row_N], path_NCT], dim=1).gather(1, deep)
        self.log_probs_BWT[row_N] = torch.cat([self.log_probs_BWT[row_N], log_probs_NCT], dim=1).gather(1, deep)
        self.count_B[row_N] += score_NC.isfinite().sum(1)

    def hypotheses(self, end: int) -> list[list[Hypothesis]]:
        """For each sentence what has ended, best first."""
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


@dataclass(frozen=True)
class Expansion:
    """The best continuations of each sentence's hypotheses: from which beam, by which token, at what total."""

    beam_NC: Tensor
    token_NC: Tensor
    log_prob_NC: Tensor
    total_NC: Tensor

    def path(self, live: Open, count: int) -> tuple[Tensor, Tensor]:
        """The whole paths of the first `count` of them, and their log-probabilities."""
        beams = self.beam_NC[:, :count, None].expand(-1, -1, live.path_NWT.shape[-1])
        path = torch.cat([live.path_NWT.gather(1, beams), self.token_NC[:, :count, None]], dim=-1)
        log_probs = torch.cat([live.log_probs_NWT.gather(1, beams), self.log_prob_NC[:, :count, None]], dim=-1)
        return path, log_probs


def beam_search(
    step: Step,
    state: Tree,
    memory: Tree,
    longest_B: Tensor,
    tokens: Tokens,
    *,
    width: int = 5,
    penalty: float = 1.0,
) -> list[list[Hypothesis]]:
    """Up to `width` finished hypotheses for each sentence, best first. `longest_B` limits their lengths."""
    rows, device = len(longest_B), longest_B.device
    live, finished = Open.first(rows, device), Finished.none(rows, width, device)
    token_NW = torch.full((rows, 1), tokens.start, device=device)
    while len(live.row_N):
        logits_NWV, state = step(token_NW, state, memory)
        best = expand(tokens.forbid(logits_NWV), live.total_NW, 2 * width)
        retire(best, live, finished, longest_B, tokens.end, width, penalty)
        beams_NW, live = select(best, live, tokens.end, width)
        going_N = unfinished(live, finished, longest_B, width, penalty)
        if not going_N.all():
            rest = going_N.nonzero()[:, 0]
            live, beams_NW = live.keep(rest), beams_NW[rest]
            state, memory = keep_rows(state, rest), keep_rows(memory, rest)
        state = follow_beams(state, beams_NW)
        token_NW = live.path_NWT[:, :, -1]
    return finished.hypotheses(tokens.end)


def expand(logits_NWV: Tensor, total_NW: Tensor, candidates: int) -> Expansion:
    """The best continuations of all hypotheses of a sentence together. The top scores are taken before normalising."""
    width, words = logits_NWV.shape[1:]
    top_NWC, token_NWC = logits_NWV.topk(min(candidates, words), dim=-1)
    log_prob_NWC = top_NWC - logits_NWV.logsumexp(-1, keepdim=True)
    total_NWC = total_NW[:, :, None] + log_prob_NWC
    total_NC, place_NC = total_NWC.flatten(1).topk(min(candidates, width * top_NWC.shape[-1]), dim=-1)
    return Expansion(
        place_NC // top_NWC.shape[-1],
        token_NWC.flatten(1).gather(1, place_NC),
        log_prob_NWC.flatten(1).gather(1, place_NC),
        total_NC,
    )


def retire(
    best: Expansion, live: Open, finished: Finished, longest_B: Tensor, end: int, width: int, penalty: float
) -> None:
    """Move hypotheses that end here, or that have reached the limit, to the finished ones.

    What ranks below the beam's width has no place in it, and so does not count as ended either.
    """
    length = live.path_NWT.shape[-1] + 1
    at_limit_N = length >= longest_B[live.row_N]
    token_NC, total_NC = best.token_NC[:, :width], best.total_NC[:, :width]
    ends_NC = (token_NC == end) | at_limit_N[:, None]
    if ends_NC.any():
        score_NC = (total_NC / length**penalty).masked_fill(~ends_NC, -torch.inf)
        finished.add(live.row_N, score_NC, *best.path(live, width))


def select(best: Expansion, live: Open, end: int, width: int) -> tuple[Tensor, Open]:
    """The best continuations that go on, and the beams they come from."""
    open_NC = best.total_NC.masked_fill(best.token_NC == end, -torch.inf)
    total_NW, place_NW = open_NC.topk(min(width, open_NC.shape[1]), dim=-1)
    chosen = Expansion(
        best.beam_NC.gather(1, place_NW),
        best.token_NC.gather(1, place_NW),
        best.log_prob_NC.gather(1, place_NW),
        total_NW,
    )
    return chosen.beam_NC, Open(live.row_N, *chosen.path(live, total_NW.shape[1]), total_NW)


def unfinished(live: Open, finished: Finished, longest_B: Tensor, width: int, penalty: float) -> Tensor:
    """Which sentences must go on: not at their limit, fewer than `width` ended, and the best could still be beaten."""
    longest_N = longest_B[live.row_N]
    reachable_N = live.total_NW.amax(-1) / longest_N**penalty  # the most that the best open one can still become
    beatable_N = reachable_N > finished.score_BW[live.row_N, 0]
    return (live.path_NWT.shape[-1] < longest_N) & (finished.count_B[live.row_N] < width) & beatable_N
