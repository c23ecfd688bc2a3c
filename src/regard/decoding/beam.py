"""Beam search: the W best hypotheses, one token further at a time.

Scores are sums of log-probabilities divided by length ** penalty (Wu et al. 2016 without its constant). A sentence is
done once W hypotheses have ended, or when no open one can still beat the best. Sentences that are done leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
    def of(cls, path_T: Tensor, log_probs_T: Tensor, end: int, penalty: float = 1.0) -> Hypothesis:
        """From a path that may end in the end token."""
        ids: list[int] = path_T.tolist()
        ended = bool(ids) and ids[-1] == end
        score = float(log_probs_T.sum()) / max(len(ids), 1) ** penalty
        return cls(tuple(ids[:-1] if ended else ids), tuple(log_probs_T.tolist()), score, ended)


@dataclass
class Open:
    """The open hypotheses of the sentences still in the batch, best first."""

    row_N: Tensor
    path_NWT: Tensor
    log_probs_NWT: Tensor
    total_NW: Tensor

    def keep(self, rest: Tensor) -> Open:
        """Only these sentences."""
        return Open(self.row_N[rest], self.path_NWT[rest], self.log_probs_NWT[rest], self.total_NW[rest])


@dataclass(frozen=True)
class Expansion:
    """The best continuations of each sentence's hypotheses: from which beam, by which token, at what total."""

    beam_NC: Tensor
    token_NC: Tensor
    log_prob_NC: Tensor
    total_NC: Tensor


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
    found: list[list[Hypothesis]] = [[] for _ in range(rows)]
    live = Open(
        torch.arange(rows, device=device),
        torch.empty(rows, 1, 0, dtype=torch.long, device=device),
        torch.empty(rows, 1, 0, device=device),
        torch.zeros(rows, 1, device=device),
    )
    token_NW = torch.full((rows, 1), tokens.start, device=device)
    while len(live.row_N):
        logits_NWV, state = step(token_NW, state, memory)
        best = expand(tokens.forbid(logits_NWV), live.total_NW, 2 * width)
        retire(best, live, found, longest_B, tokens.end, width, penalty)
        beams_NW, live = select(best, live, tokens.end, width)
        rest = unfinished(live, found, longest_B, width, penalty)
        if len(rest) < len(live.row_N):
            live, beams_NW = live.keep(rest), beams_NW[rest]
            state, memory = keep_rows(state, rest), keep_rows(memory, rest)
        state = follow_beams(state, beams_NW)
        token_NW = live.path_NWT[:, :, -1]
    return [sorted(ended, key=lambda hypothesis: -hypothesis.score)[:width] for ended in found]


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
    best: Expansion,
    live: Open,
    found: list[list[Hypothesis]],
    longest_B: Tensor,
    end: int,
    width: int,
    penalty: float,
) -> None:
    """Move hypotheses that end here, or that have reached the limit, from the beam to the finished ones."""
    at_limit_N = live.path_NWT.shape[-1] + 1 >= longest_B[live.row_N]
    ends_NC = (best.token_NC == end) | at_limit_N[:, None]
    ends_NC[:, width:] &= False  # what ranks below the beam's width has no place in it
    for row, candidate in (ends_NC & best.total_NC.isfinite()).nonzero().tolist():
        beam = int(best.beam_NC[row, candidate])
        path = torch.cat([live.path_NWT[row, beam], best.token_NC[row, candidate, None]])
        log_probs = torch.cat([live.log_probs_NWT[row, beam], best.log_prob_NC[row, candidate, None]])
        found[int(live.row_N[row])].append(Hypothesis.of(path, log_probs, end, penalty))


def select(best: Expansion, live: Open, end: int, width: int) -> tuple[Tensor, Open]:
    """The best continuations that go on, and the beams they come from."""
    open_NC = best.total_NC.masked_fill(best.token_NC == end, -torch.inf)
    total_NW, place_NW = open_NC.topk(min(width, open_NC.shape[1]), dim=-1)
    beam_NW, token_NW = best.beam_NC.gather(1, place_NW), best.token_NC.gather(1, place_NW)
    log_prob_NW = best.log_prob_NC.gather(1, place_NW)
    history = beam_NW[:, :, None].expand(-1, -1, live.path_NWT.shape[-1])
    path_NWT = torch.cat([live.path_NWT.gather(1, history), token_NW[:, :, None]], dim=-1)
    log_probs_NWT = torch.cat([live.log_probs_NWT.gather(1, history), log_prob_NW[:, :, None]], dim=-1)
    return beam_NW, Open(live.row_N, path_NWT, log_probs_NWT, total_NW)


def unfinished(live: Open, found: Sequence[list[Hypothesis]], longest_B: Tensor, width: int, penalty: float) -> Tensor:
    """Places of the sentences that must go on."""
    rest = []
    length = live.path_NWT.shape[-1]
    best_open = live.total_NW.amax(-1).tolist()
    for place, row in enumerate(live.row_N.tolist()):
        limit = int(longest_B[row])
        ended = found[row]
        reachable = best_open[place] / limit**penalty  # the most that the best open one can still become
        hopeless = bool(ended) and max(hypothesis.score for hypothesis in ended) >= reachable
        if length < limit and len(ended) < width and not hopeless:
            rest.append(place)
    return torch.tensor(rest, dtype=torch.long, device=longest_B.device)
