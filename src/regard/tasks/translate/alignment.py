"""Word alignment of texts and their translations, computed from cross-attention in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.analysis.alignment import AlignmentHeads, align, word_map
from regard.analysis.trace import TraceSide, make_side, place_in_text
from regard.data.batches import in_batches, make_batch
from regard.errors import NoCrossAttentionError
from regard.layers.hooks import attention_hooks, trace
from regard.models.base import Seq2Seq
from regard.tasks.translate.translation import Alignment, Translation
from regard.text.tokenizer import EOS, Tokenizer
from regard.text.words import words

BATCH_TOKENS = 2048  # of both sides, with padding


class Aligner:
    """Aligns the words of texts and translations by the model's cross-attention under teacher forcing.

    `choice` says which attention heads are used, and how links are chosen from their weights.
    """

    def __init__(self, model: Seq2Seq, source: Tokenizer, target: Tokenizer, choice: AlignmentHeads | None = None):
        self.model, self.source, self.target, self.choice = model, source, target, choice or AlignmentHeads()
        cross = [name for name in attention_hooks(model) if name.endswith("cross")]
        if not cross:
            raise NoCrossAttentionError("a model without cross-attention cannot align words; leave out --align")
        self._taps = list(dict.fromkeys(head.attention for head in self.choice.heads)) or cross

    def align(self, texts: Sequence[str], targets: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[Alignment]:
        """Return the word alignment of each text with its translation in `targets`; no links if either is empty."""
        choice = self.choice
        pairs, maps = self._map(texts, targets, [choice.shift], batch_tokens)
        return [
            Alignment(source.words, target.words, align(choice.map(found), choice.rule) if found else ())
            for (source, target), found in zip(pairs, maps[choice.shift], strict=True)
        ]

    def add(self, translations: Sequence[Translation], batch_tokens: int = BATCH_TOKENS) -> list[Translation]:
        """Return copies of the translations, with word alignments for them and for their n-best alternatives."""
        every = [one for best in translations for one in (best, *best.alternatives)]
        found = self.align([one.source for one in every], [one.text for one in every], batch_tokens)
        aligned = iter([replace(one, alignment=links) for one, links in zip(every, found, strict=True)])
        return [
            replace(next(aligned), alternatives=tuple(next(aligned) for _ in best.alternatives))
            for best in translations
        ]

    def word_maps(self, texts: Sequence[str], targets: Sequence[str]) -> dict[bool, list[dict[str, Tensor]]]:
        """Return `maps[shift][pair][layer]`: cross-attention weights [H, T, S] between words, for T target words.

        `layer` is the name of an attention module. With `shift` False, a target word has the weights of the decoding
        step that predicts it; with `shift` True, those of the step after it, whose input is the word.
        """
        return self._map(texts, targets, (False, True), BATCH_TOKENS)[1]

    def _map(
        self, texts: Sequence[str], targets: Sequence[str], shifts: Sequence[bool], batch_tokens: int
    ) -> tuple[list[tuple[TextWords, TextWords]], dict[bool, list[dict[str, Tensor]]]]:
        pairs = [
            (_read(self.source, text), _read(self.target, target)) for text, target in zip(texts, targets, strict=True)
        ]
        found: dict[bool, list[dict[str, Tensor]]] = {shift: [{} for _ in pairs] for shift in shifts}
        sizes = [len(source.ids) + len(target.ids) + 2 if source.ids and target.ids else 0 for source, target in pairs]
        for places in in_batches(sizes, batch_tokens, skip_empty=True):
            ids = [(source.ids, target.ids) for source, target in map(pairs.__getitem__, places)]
            batch = make_batch(ids, self.source.pad, self.target.pad).to(self.model.output.weight.device)
            with torch.inference_mode(), trace(self.model, self._taps) as tape:
                self.model.hidden(batch.source, batch.target_input_BT)
            layers = [tape[name].weights_BHTS for name in self._taps]
            weights_BHTS, heads = torch.cat(layers, dim=1).cpu(), [layer.shape[1] for layer in layers]
            for row, place in enumerate(places):
                source, target = pairs[place]
                weights_HTS = weights_BHTS[row, :, : len(target.ids) + 1, : len(source.ids) + 1]
                for shift in shifts:
                    mapped = word_map(weights_HTS, source.side, target.side, shift=shift)
                    words_HTS = mapped[:, target.side_index][:, :, source.side_index]
                    found[shift][place] = dict(zip(self._taps, words_HTS.split(heads), strict=True))
        return pairs, found


class TextWords(NamedTuple):
    """A text as tokens and as words, and which words the tokens belong to."""

    spelled: str
    """The normalized text, as the tokens spell it."""
    ids: list[int]
    side: TraceSide
    """Tokens and words with their character positions in `spelled`. Words that share a token are one word here."""
    words: tuple[str, ...]
    side_index: list[int]
    """For each of `words`, its index in `side.words`."""


def text_side(tokenizer: Tokenizer, text: str, ids: Sequence[int] | None = None) -> TraceSide:
    """Return the tokens of `text` (and the end token), its words, and their character positions in `text`.

    `ids` are the token ids of `text`. They must be given for the output of a search, which may consist of other tokens
    than the tokenizer makes from the text.
    """
    read = _read(tokenizer, text, ids)
    return place_in_text(read.side, read.spelled, text)


def _read(tokenizer: Tokenizer, text: str, ids: Sequence[int] | None = None) -> TextWords:
    pieces = tokenizer.pieces(text) if ids is None else tokenizer.pieces_of(ids)
    # Pieces of word and character vocabularies have positions in the normalized text; others, in the decoded text.
    is_normalized = ids is None and tokenizer.kind in ("word", "character")
    found = [piece.id for piece in pieces]
    spelled = tokenizer.normalize(text) if is_normalized else tokenizer.decode(found)
    end = len(spelled) + 1  # after the last word
    there = words(spelled)
    side = make_side(
        [*(piece.text for piece in pieces), tokenizer.token(EOS)],
        [*((piece.start, piece.end) for piece in pieces), (end, end)],
        [(word.text, word.start, word.end) for word in there],
    )
    side_index = [
        next(side.word_of[k] for k, piece in enumerate(pieces) if piece.start < word.end and word.start < piece.end)
        for word in there
    ]
    return TextWords(spelled, found, side, tuple(word.text for word in there), side_index)
