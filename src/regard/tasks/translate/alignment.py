"""Aligning: texts and their translations in, links between their words out, many pairs at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.analysis.alignment import AlignmentHeads, align, word_map
from regard.analysis.trace import TraceSide, make_side, place_in_text
from regard.data.batches import in_batches, make_batch
from regard.errors import SettingsError
from regard.layers.hooks import taps, trace
from regard.models.base import Seq2Seq
from regard.tasks.translate.translation import Alignment, Translation
from regard.text.tokenizer import EOS, Piece, Tokenizer
from regard.text.words import Word, words

BATCH_TOKENS = 2048
"""Padded tokens, of both sides together, that are run at once."""


class Aligner:
    """A model that says which words render which, by where it looks while it writes them."""

    def __init__(self, model: Seq2Seq, source: Tokenizer, target: Tokenizer, choice: AlignmentHeads | None = None):
        """`choice` says which heads are asked; by default all that look at the source."""
        self.model, self.source, self.target, self.choice = model, source, target, choice or AlignmentHeads()
        cross = [name for name in taps(model) if name.endswith("cross")]
        if not cross:
            raise SettingsError("a model without attention to the source cannot align words; leave out --align")
        self._taps = list(dict.fromkeys(head.attention for head in self.choice.heads)) or cross

    def align(self, texts: Sequence[str], targets: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[Alignment]:
        """The links of each pair. A pair with an empty side has none."""
        choice = self.choice
        pairs = self._read_pairs(texts, targets)
        maps = self._map(pairs, [choice.shift], batch_tokens)[choice.shift]
        return [
            Alignment(source.words, target.words, align(choice.map(found), choice.rule) if found else ())
            for (source, target), found in zip(pairs, maps, strict=True)
        ]

    def add(self, answers: Sequence[Translation], batch_tokens: int = BATCH_TOKENS) -> list[Translation]:
        """The answers, and their alternatives, with their alignments."""
        every = [one for answer in answers for one in (answer, *answer.alternatives)]
        found = self.align([one.source for one in every], [one.text for one in every], batch_tokens)
        made = iter([replace(one, alignment=links) for one, links in zip(every, found, strict=True)])
        return [replace(next(made), alternatives=tuple(next(made) for _ in answer.alternatives)) for answer in answers]

    def word_maps(
        self,
        texts: Sequence[str],
        targets: Sequence[str],
        shifts: Sequence[bool] = (False, True),
        batch_tokens: int = BATCH_TOKENS,
    ) -> dict[bool, list[dict[str, Tensor]]]:
        """By shift, for each pair: maps [H, T, S] between words, by attention; none for a pair with an empty side."""
        return self._map(self._read_pairs(texts, targets), shifts, batch_tokens)

    def _read_pairs(self, texts: Sequence[str], targets: Sequence[str]) -> list[tuple[AlignedPair, AlignedPair]]:
        return [
            (_read(self.source, text), _read(self.target, target)) for text, target in zip(texts, targets, strict=True)
        ]

    def _map(
        self, pairs: Sequence[tuple[AlignedPair, AlignedPair]], shifts: Sequence[bool], batch_tokens: int
    ) -> dict[bool, list[dict[str, Tensor]]]:
        found: dict[bool, list[dict[str, Tensor]]] = {shift: [{} for _ in pairs] for shift in shifts}
        sizes = [len(source.ids) + len(target.ids) + 2 if source.ids and target.ids else 0 for source, target in pairs]
        for places in in_batches(sizes, batch_tokens, skip_empty=True):
            weights_BHTS, heads = self._record([pairs[place] for place in places])
            for row, place in enumerate(places):
                source, target = pairs[place]
                weights_HTS = weights_BHTS[row, :, : len(target.ids) + 1, : len(source.ids) + 1]
                for shift in shifts:
                    mapped = word_map(weights_HTS, source.side, target.side, shift=shift)
                    words_HTS = mapped[:, target.homes][:, :, source.homes]
                    found[shift][place] = dict(zip(self._taps, words_HTS.split(heads), strict=True))
        return found

    @torch.inference_mode()
    def _record(self, pairs: Sequence[tuple[AlignedPair, AlignedPair]]) -> tuple[Tensor, list[int]]:
        """The weights of all attentions, one below the other, and how many heads each has."""
        ids = [(source.ids, target.ids) for source, target in pairs]
        batch = make_batch(ids, self.source.pad, self.target.pad).to(self.model.output.weight.device)
        with trace(self.model, self._taps) as tape:
            self.model.hidden(batch.source, batch.target_input_BT)
        found = [tape[name].weights_BHTS for name in self._taps]
        return torch.cat(found, dim=1).cpu(), [weights.shape[1] for weights in found]


# ---------------------------------------------------------------------------------------------------------------------
# A text as tokens and words


class AlignedPair(NamedTuple):
    """A text as a model reads it."""

    spelled: str
    """What the tokens spell: the text, normalised."""
    ids: list[int]
    side: TraceSide
    """Its spans are places in `spelled`."""
    words: tuple[str, ...]
    homes: list[int]
    """For each word its place in `side`, where words that share one token are one."""


def text_side(tokenizer: Tokenizer, text: str, ids: Sequence[int] | None = None) -> TraceSide:
    """The tokens of a text, the end token last, with their words and their places in the text as it was typed.

    `ids` are its tokens if they are known; a search may have cut the text differently than the tokenizer would.
    """
    read = _read(tokenizer, text, ids)
    return place_in_text(read.side, read.spelled, text)


def _read(tokenizer: Tokenizer, text: str, ids: Sequence[int] | None = None) -> AlignedPair:
    pieces = tokenizer.pieces(text) if ids is None else tokenizer.pieces_of(ids)
    # Lists of words and characters know where an unknown word stands; elsewhere places are those of the decoded text.
    listed = ids is None and tokenizer.kind in ("word", "character")
    found = [piece.id for piece in pieces]
    spelled = tokenizer.normalize(text) if listed else tokenizer.decode(found)
    end = len(spelled) + 1  # beyond the last word
    there = words(spelled)
    side = make_side(
        [*(piece.text for piece in pieces), tokenizer.token(EOS)],
        [*((piece.start, piece.end) for piece in pieces), (end, end)],
        [(word.text, word.start, word.end) for word in there],
    )
    homes = [next(side.word_of[k] for k, piece in enumerate(pieces) if _touch(piece, word)) for word in there]
    return AlignedPair(spelled, found, side, tuple(word.text for word in there), homes)


def _touch(piece: Piece, word: Word) -> bool:
    return piece.start < word.end and word.start < piece.end
