"""How much a head matters, over many sentences: what the loss says when the head is gone, and what its slope says.

By ablation: the loss a token without the head, less the loss with all heads. By gradient: Michel et al. 2019, "Are
Sixteen Heads Really Better than One?", E |d loss / d gate| for a gate of 1 on the head's output, one gate a sentence.
Both step in at the taps, so they serve every architecture that has attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.taps import listen, trace, without_heads
from regard.models.base import Seq2Seq, Source


class Pairs(Protocol):
    """A batch of sentence pairs."""

    @property
    def source(self) -> Source:
        """What the encoder reads."""

    @property
    def target_input_BT(self) -> Tensor:
        """What the decoder reads."""

    @property
    def target_output_BT(self) -> Tensor:
        """What it is to write."""

    @property
    def target_mask_BT(self) -> Tensor:
        """True where input and output are real."""


@torch.no_grad()
def count_heads(model: Seq2Seq, batch: Pairs) -> dict[str, int]:
    """How many heads each attention has, in the order of the layers."""
    with trace(model) as tape:
        model.hidden(batch.source, batch.target_input_BT)
    return {name: seen.weights_BHTS.shape[1] for name, seen in tape.items()}


@torch.no_grad()
def importance_by_ablation(
    model: Seq2Seq, batches: Sequence[Pairs], tell: Callable[[str], None] = lambda doing: None
) -> dict[str, Tensor]:
    """For each attention the rise [H] of the loss a token when the weights of one head are set to zero.

    It takes a pass over the batches for each head; `tell` hears whose turn it is.
    """
    whole = _loss_a_token(model, batches)
    rises = {}
    for name, heads in count_heads(model, batches[0]).items():
        rise_H = torch.empty(heads)
        for head in range(heads):
            tell(f"{name} without head {head}")
            with listen(model, name, without_heads(head)):
                rise_H[head] = _loss_a_token(model, batches) - whole
        rises[name] = rise_H
    return rises


def importance_by_gradient(model: Seq2Seq, batches: Iterable[Pairs]) -> dict[str, Tensor]:
    """For each attention the mean [H] over sentences of |d loss / d gate|; the loss of a sentence is a token's mean."""
    sums: dict[str, Tensor] = {}
    sentences = 0
    for batch in batches:
        gates: dict[str, Tensor] = {}

        def gate(name: str, weights_BHTS: Tensor, gates: dict[str, Tensor] = gates) -> Tensor:
            if name not in gates:  # a recurrent decoder passes once a token
                gates[name] = weights_BHTS.new_ones(weights_BHTS.shape[:2], requires_grad=True)
            return weights_BHTS * gates[name][..., None, None]

        with torch.enable_grad(), listen(model, "*", gate):
            loss_B = sentence_losses(model, batch) / batch.target_mask_BT.sum(1)
            slopes = torch.autograd.grad(loss_B.sum(), list(gates.values()))
        for name, slope_BH in zip(gates, slopes, strict=True):
            sums[name] = sums.get(name, 0.0) + slope_BH.abs().sum(0)
        sentences += len(loss_B)
    return {name: sum_H / sentences for name, sum_H in sums.items()}


def sentence_losses(model: Seq2Seq, batch: Pairs) -> Tensor:
    """Negative log-likelihood [B] of each target, summed over its tokens."""
    real_BT = batch.target_mask_BT
    logits_NV = model.output(model.hidden(batch.source, batch.target_input_BT)[real_BT])
    surprise_N = F.cross_entropy(logits_NV, batch.target_output_BT[real_BT], reduction="none")
    return surprise_N.new_zeros(len(real_BT)).index_add(0, real_BT.nonzero()[:, 0], surprise_N)


def _loss_a_token(model: Seq2Seq, batches: Iterable[Pairs]) -> float:
    total, tokens = 0.0, 0
    for batch in batches:
        total += float(sentence_losses(model, batch).double().sum())
        tokens += int(batch.target_mask_BT.sum())
    return total / tokens
