"""A trace: everything that attention did while a model read one sentence and wrote another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ModelError, nearest
from regard.layers.taps import trace as record
from regard.models.base import Seq2Seq, Source


@dataclass(frozen=True)
class Trace:
    """The tokens of both sides and the weights of every attention between them.

    `target_tokens` are the tokens that were written, the end token last; row t of a decoder map shows where the model
    looked in order to write token t.
    """

    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    weights: dict[str, Tensor]

    def attention(self, name: str) -> Tensor:
        """Weights [heads, target, source] of one attention, e.g. "decoder.2.cross"."""
        if name not in self.weights:
            guess = nearest(name, self.weights) or f"; there are {', '.join(self.weights)}"
            raise ModelError(f'the trace has no attention "{name}"{guess}')
        return self.weights[name]


@torch.no_grad()
def record_trace(
    model: Seq2Seq,
    source: Source,
    target_input_1T: Tensor,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
) -> Trace:
    """Run a model once over one sentence pair and keep what every attention did."""
    with record(model) as tape:
        model(source, target_input_1T)
    weights = {name: tape.steps(name)[0] for name in tape}
    return Trace(tuple(source_tokens), tuple(target_tokens), weights)
