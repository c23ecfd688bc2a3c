"""A trace: everything that attention did while a model read one sentence and wrote another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.errors import ModelError, nearest
from regard.layers.taps import trace as record
from regard.models.base import Seq2Seq, Source


@dataclass(frozen=True)
class Side:
    """The tokens of a sentence and the words they make up."""

    tokens: tuple[str, ...]
    words: tuple[str, ...]
    word_of: tuple[int, ...]
    """For each token the place of its word."""

    def merge(self, weights: Tensor, dim: int, *, mean: bool) -> Tensor:
        """Tokens along `dim` become words: their sum (a word gets what its parts get) or mean (it looks as they do)."""
        index = torch.tensor(self.word_of)
        shape = list(weights.shape)
        shape[dim] = len(self.words)
        merged = weights.new_zeros(shape).index_add_(dim, index, weights)
        if not mean:
            return merged
        counts = torch.bincount(index, minlength=len(self.words)).to(weights.dtype)
        return merged / counts.unsqueeze(-1 if dim == -2 else 0)

    def shifted(self, first: str) -> Side:
        """What the decoder reads while it writes this side: the start token, then all but the end."""
        words = (first, *self.words[:-1])
        return Side((first, *self.tokens[:-1]), words, (0, *(place + 1 for place in self.word_of[:-1])))


@dataclass(frozen=True)
class Trace:
    """Both sides and the weights of every attention between and within them.

    The target's tokens are those that were written, the end token last; row t of a decoder map shows where the model
    looked in order to write token t.
    """

    source: Side
    target: Side
    weights: dict[str, Tensor]

    def __repr__(self) -> str:
        return f"<Trace: {' '.join(self.source.words)} | {' '.join(self.target.words)} | {', '.join(self.weights)}>"

    def attention(self, name: str) -> Tensor:
        """Weights [heads, target, source] of one attention, e.g. "decoder.2.cross"."""
        if name not in self.weights:
            guess = nearest(name, self.weights) or f"; there are {', '.join(self.weights) or 'none'}"
            raise ModelError(f'the trace has no attention "{name}"{guess}')
        return self.weights[name]

    def axes(self, name: str) -> tuple[Side, Side]:
        """Who looks in an attention of this name, and at what."""
        if name.startswith("encoder."):
            return self.source, self.source
        return self.target, self.target.shifted("<s>") if name.endswith(".self") else self.source

    def by_words(self) -> Trace:
        """The same with words for tokens: a word looks as its tokens do on average, and gets what they all get."""
        merged = {}
        for name, weights in self.weights.items():
            rows, columns = self.axes(name)
            merged[name] = columns.merge(rows.merge(weights, -2, mean=True), -1, mean=False)
        source, target = (
            replace(side, tokens=side.words, word_of=tuple(range(len(side.words))))
            for side in (self.source, self.target)
        )
        return Trace(source, target, merged)


@torch.no_grad()
def record_trace(model: Seq2Seq, ids: Source, target_input_1T: Tensor, source: Side, target: Side) -> Trace:
    """Run a model once over one sentence pair and keep what every attention did."""
    with record(model) as tape:
        model(ids, target_input_1T)
    return Trace(source, target, {name: seen.weights_BHTS[0] for name, seen in tape.items()})


def make_side(tokens: Sequence[str], spans: Sequence[tuple[int, int]], words: Sequence[tuple[str, int, int]]) -> Side:
    """Join tokens and words by their places in the text; a token that touches no word makes one of its own."""
    texts: list[str] = []
    word_of: list[int] = []
    last = None
    for token, (start, end) in zip(tokens, spans, strict=True):
        home = next((word for word in words if word[1] < max(end, start + 1) and start < word[2]), None)
        if home is None or home is not last:
            texts.append(token if home is None else home[0])
        word_of.append(len(texts) - 1)
        last = home
    return Side(tuple(tokens), tuple(texts), tuple(word_of))
