"""Looking at two levels of attention as though they were one: HRAN's words and utterances, for the taps.

Every tool for looking inside knows weights over the tokens of the source. So both levels are laid out over these:

"decoder.word"       the weights of the words in their utterances; they sum to 1 in each
"decoder.utterance"  the weights of the utterances, at the tokens that close them
"decoder.cross"      their product, which sums to 1; what replaces it is taken apart into the two again

Utterances have other states at each step, so what is recorded as keys and values are the word states. Who listens to
words is asked once an utterance, the weights of the others being 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.taps import Listener, Seen, Tap
from regard.models.base import Memory

Context = Callable[[Tensor, Tap, Tap], Tensor]
"""context(state_ND, word, utterance): what is seen from a state, [N, D]; each tap is asked about its level."""


class Taps(NamedTuple):
    """What may be listened to."""

    word: Tap
    utterance: Tap
    both: Tap

    @property
    def idle(self) -> bool:
        """Nobody looks."""
        return all(tap.idle for tap in self)


class Witness:
    """Runs the steps of one pass for those who look, and tells them when it is over."""

    def __init__(self, taps: Taps, context: Context, memory: Memory, places: Sequence[Tensor]):
        """`places` [B, L]: where the words of each utterance stand among the S source tokens; S for none."""
        self.taps, self._context, self._memory, self._places = taps, context, memory, places
        self._size = memory.mask_BS.shape[1]
        ends = [place_BL.masked_fill(place_BL == self._size, -1).amax(-1) for place_BL in places]
        self._ends_BU = torch.stack([end_B.masked_fill(end_B < 0, self._size) for end_B in ends], dim=1)
        self._queries: list[Tensor] = []
        self._steps: dict[Tap, list[Tensor]] = {tap: [] for tap in taps}

    def context(self, state_ND: Tensor) -> Tensor:
        """One step, its weights shown and, if somebody wishes, replaced."""
        words: list[Tensor] = []
        shares: list[Tensor] = []
        context_ND = self._run(state_ND, self._hear_words(words), self._hear_utterances(shares))
        [share] = shares
        joint = self._join(words, share)
        other = self.taps.both.replace(joint)
        if other is not joint:
            words, share = self._take_apart(other, words)
            context_ND = self._run(state_ND, _giving(words), _giving([_by_row(share)]))
        parts = [self._spread(found, place) for found, place in zip(words, self._places, strict=True)]
        shown = Seeing(torch.stack(parts).sum(0), self._spread(share, self._ends_BU), other)
        for tap, weights in zip(self.taps, shown, strict=True):
            self._steps[tap].append(weights)
        self._queries.append(state_ND.unflatten(0, (len(self._ends_BU), 1, -1)))
        return context_ND

    def tell(self) -> None:
        """The steps as one pass, for those who record."""
        states = self._memory.states_BSD.unsqueeze(1)
        query = torch.cat(self._queries, dim=-2)
        for tap, steps in self._steps.items():
            weights = torch.cat(steps, dim=-2)
            tap.record(Seen(tap.name, query, states, states, weights, weights @ states))

    def _run(self, state_ND: Tensor, words: Listener, utterances: Listener) -> Tensor:
        word, utterance = Tap("word"), Tap("utterance")
        with word.attached(words), utterance.attached(utterances):
            return self._context(state_ND, word, utterance)

    def _hear_words(self, found: list[Tensor]) -> Listener:
        def listen(name: str, weights: Tensor) -> Tensor:
            found.append(self._asked(self.taps.word, weights, self._places[len(found)]))
            return found[-1]

        return listen

    def _hear_utterances(self, found: list[Tensor]) -> Listener:
        def listen(name: str, weights_N11U: Tensor) -> Tensor:
            by_context = weights_N11U.reshape(len(self._ends_BU), 1, -1, weights_N11U.shape[-1])  # [B, 1, W, U]
            found.append(self._asked(self.taps.utterance, by_context, self._ends_BU))
            return _by_row(found[-1])

        return listen

    def _asked(self, tap: Tap, weights: Tensor, place_BL: Tensor) -> Tensor:
        """The weights, or what a listener puts in their place."""
        return _gather(tap.replace(self._spread(weights, place_BL)), place_BL) if tap.listeners else weights

    def _join(self, words: Sequence[Tensor], share: Tensor) -> Tensor:
        """The weight of each token: of the word in its utterance, times that of the utterance."""
        shares = share.split(1, dim=-1)
        parts = zip(words, shares, self._places, strict=True)
        return torch.stack([self._spread(found * part, place) for found, part, place in parts]).sum(0)

    def _take_apart(self, joint: Tensor, words: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Weights of words and of utterances whose product is `joint`.

        The words of an utterance that has lost all its weight keep those that they had.
        """
        parts = [_gather(joint, place_BL) for place_BL in self._places]
        shares = [part.sum(-1, keepdim=True) for part in parts]
        found = [
            torch.where(share == 0, before, part / share)
            for before, part, share in zip(words, parts, shares, strict=True)
        ]
        return found, torch.cat(shares, dim=-1)

    def _spread(self, weights: Tensor, place_BL: Tensor) -> Tensor:
        """Weights [B, 1, W, L] at their places among the source tokens, [B, 1, W, S]."""
        empty = weights.new_zeros(*weights.shape[:-1], self._size + 1)
        return empty.scatter(-1, place_BL[:, None, None].expand_as(weights), weights)[..., : self._size]


class Seeing(NamedTuple):
    """Weights over the source tokens [B, 1, W, S], in the order of `Taps`."""

    word: Tensor
    utterance: Tensor
    both: Tensor


def _gather(flat_B1WS: Tensor, place_BL: Tensor) -> Tensor:
    """Back from the source tokens to the words of an utterance; 0 where there is none."""
    index = place_BL[:, None, None].expand(*flat_B1WS.shape[:-1], -1)
    return F.pad(flat_B1WS, (0, 1)).gather(-1, index)


def _by_row(weights_B1WU: Tensor) -> Tensor:
    """[B, 1, W, U] to [N, 1, 1, U]: to the decoder, hypotheses are rows."""
    return weights_B1WU.reshape(-1, 1, 1, weights_B1WU.shape[-1])


def _giving(weights: Sequence[Tensor]) -> Listener:
    """A listener that puts given weights in the place of others, call after call."""
    left: Iterator[Tensor] = iter(weights)
    return lambda name, there: next(left)
