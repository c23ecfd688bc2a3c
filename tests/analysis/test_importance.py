"""Importance: what a head is worth, by taking it away and by its slope."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard.analysis.head_roles import importance_by_ablation, importance_by_gradient
from regard.analysis.pruning import attentions
from regard.layers.hooks import attention_hooks, listen
from regard.models.base import Seq2Seq, sentence_losses
from tests.analysis.pairs import pairs
from tests.toys import TOYS, VARIANTS, build, close

SMALL = VARIANTS["rotary positions"]


def silence(model: Seq2Seq, name: str, head: int) -> None:
    """Take a head's word out of the output map."""
    _, module = attentions(model)[name]
    with torch.no_grad():
        module.out.weight.unflatten(1, (module.heads, -1))[:, head] = 0.0


def test_a_head_that_says_nothing_does_not_matter() -> None:
    model, batches = build(SMALL).requires_grad_(False), [pairs(5, 3), pairs(4)]
    silence(model, "encoder.1.self", 2)
    for measure in (importance_by_ablation, importance_by_gradient):
        found = measure(model, batches)
        assert list(found) == list(attention_hooks(model))
        assert float(found["encoder.1.self"][2]) == pytest.approx(0, abs=1e-6)
        assert all((heads_H.abs() > 1e-5).sum() >= 3 for heads_H in found.values())


@torch.no_grad()
def test_ablation_is_the_loss_without_the_head() -> None:
    model, batches = build(SMALL), [pairs(5, 3), pairs(4)]
    pruned_model = build(SMALL)
    silence(pruned_model, "decoder.0.cross", 1)
    whole, part = (
        sum(float(sentence_losses(one, batch).sum()) for batch in batches) / 12 for one in (model, pruned_model)
    )
    assert importance_by_ablation(model, batches)["decoder.0.cross"][1] == pytest.approx(part - whole, abs=1e-5)


def test_losses_of_sentences_are_those_of_the_logits() -> None:
    model, batch = build(SMALL), pairs(5, 3)
    logits_BTV = model(batch.source, batch.target_input_BT).log_softmax(-1)
    surprise_BT = -logits_BTV.gather(-1, batch.target_output_BT[..., None])[..., 0]
    close(sentence_losses(model, batch), (surprise_BT * batch.target_mask_BT).sum(1), 1e-4)


@pytest.mark.parametrize("arch", ["transformer-small", "bahdanau"])
def test_the_slope_is_that_of_a_gate(arch: str) -> None:
    """|d loss / d gate| by finite differences, sentence by sentence (Michel et al. 2019, equation 2)."""
    model, batch = build(TOYS[arch]).double().requires_grad_(False), pairs(5, 3)
    name, step = list(attention_hooks(model))[-1], 1e-4

    def loss_B(gate: float) -> Tensor:
        def scale(name: str, weights_BHTS: Tensor) -> Tensor:
            weights_BHTS = weights_BHTS.clone()
            weights_BHTS[:, 0] *= gate
            return weights_BHTS

        with listen(model, name, scale), torch.no_grad():
            return sentence_losses(model, batch) / batch.target_mask_BT.sum(1)

    slope_B = (loss_B(1 + step) - loss_B(1 - step)) / (2 * step)
    found = importance_by_gradient(model, [batch])[name][0]
    assert float(found) == pytest.approx(float(slope_B.abs().mean()), rel=1e-4)
