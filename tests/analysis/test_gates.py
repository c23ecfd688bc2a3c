"""Hard concrete gates (Louizos et al. 2018), and a model that runs through them."""

from __future__ import annotations

import pytest
import torch

from regard.analysis.head_roles import count_heads
from regard.analysis.pruning import GatedModel, HeadGates, hard_concrete, open_probability
from regard.layers.hooks import listen, without_heads
from regard.models.base import sentence_losses
from tests.analysis.pairs import pairs
from tests.toys import VARIANTS, build, close, walk

SMALL = VARIANTS["rotary positions"]


@pytest.mark.parametrize("log_alpha", [-3.0, -0.5, 0.0, 2.0])
def test_gates_are_open_as_often_as_the_penalty_counts(log_alpha: float) -> None:
    gate_N = hard_concrete(torch.tensor(log_alpha), torch.rand(20_000))
    assert gate_N.min() >= 0
    assert gate_N.max() <= 1
    expected = float(open_probability(torch.tensor(log_alpha)))
    assert float((gate_N > 0).float().mean()) == pytest.approx(expected, abs=0.015)


def test_gates_end_exactly_open_or_shut() -> None:
    assert hard_concrete(torch.tensor([-4.0, 4.0])).tolist() == [0.0, 1.0]
    assert 0 < float(hard_concrete(torch.tensor(0.0))) < 1


@torch.no_grad()
def test_a_shut_gate_switches_its_head_off() -> None:
    model, batch = build(SMALL), pairs(5, 3)
    gates = HeadGates(count_heads(model, batch), gain=10.0)
    gates.position.fill_(9.0)
    gates.position[5] = -9.0  # encoder.1.self, head 1
    gated = GatedModel(model, gates).eval()
    with listen(model, "encoder.1.self", without_heads(1)):
        expected = model(batch.source, batch.target_input_BT)
    close(gated(batch.source, batch.target_input_BT), expected)
    close(walk(gated, batch.source, batch.target_input_BT[:, None])[:, 0], expected)
    assert gates.by_attention()["encoder.1.self"].tolist() == [90.0, -90.0, 90.0, 90.0]
    assert gates.open_share() == pytest.approx(19 / 20 * 1.0, abs=0.04)


@pytest.mark.parametrize("follow", [True, False])
def test_gates_learn_and_the_weights_if_they_may(follow: bool) -> None:
    model, batch = build(SMALL), pairs(5, 3)
    gated = GatedModel(model, HeadGates(count_heads(model, batch)), weights_follow=follow).train()
    (sentence_losses(gated, batch).sum() + gated.gates.open_share()).backward()
    assert gated.gates.position.grad is not None
    assert gated.gates.position.grad.all()
    assert all((weight.grad is not None) is follow for weight in model.parameters())


def test_sentences_draw_gates_of_their_own() -> None:
    weights_BHTS = torch.ones(50, 2, 1, 1)
    gates = HeadGates({"a": 2}).train()
    drawn = gates("a", weights_BHTS).flatten(1)
    assert len(drawn.unique(dim=0)) > 10
    gates.eval()
    assert len(gates("a", weights_BHTS).flatten(1).unique(dim=0)) == 1
