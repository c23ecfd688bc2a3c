"""The attending LSTM: its formulas by hand (Xu et al. 2015), its regularization, and that it learns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from regard import models
from regard.layers.auxiliary import collect_auxiliary, target_padding
from regard.layers.hooks import listen, trace
from regard.models.show_attend_tell import ShowAttendTell
from tests.toys import toy

PICTURES = {"picture_channels": 3, "picture_height": 8, "picture_width": 12, "patch_size": 4}


def build(**changes: object) -> tuple[ShowAttendTell, SimpleNamespace]:
    torch.manual_seed(1)
    model = models.build(toy("show-attend-tell", **changes), **PICTURES, target_vocabulary=11)
    assert isinstance(model, ShowAttendTell)
    source = SimpleNamespace(ids_BS=torch.randn(2, 3, 8, 12), mask_BS=torch.ones(2, 6, dtype=torch.bool))
    return model, source


def test_the_first_state_is_computed_from_the_mean_of_the_annotation_vectors() -> None:
    model, source = build()
    memory = model.eval().encode(source)
    hidden_B1D, memory_B1D = model.start(memory)
    mean_BD = memory.states_BSD.mean(1)
    assert torch.allclose(hidden_B1D[:, 0], torch.tanh(model.first[0](mean_BD)), atol=1e-6)
    assert torch.allclose(memory_B1D[:, 0], torch.tanh(model.first[1](mean_BD)), atol=1e-6)


def test_one_step_by_hand() -> None:
    """Equations 1 to 3, 4, 7 and 9 of the paper, with the gate beta of section 4.2.1."""
    model, source = build()
    memory = model.eval().encode(source)
    state = model.start(memory)
    logits_BWV, (hidden_BWD, _) = model.step(torch.full((2, 1), 3), state, memory)
    before_BD = state[0][:, 0]
    score = model.attention.score
    energy_BS = score.score(torch.tanh(score.query(before_BD)[:, None] + score.key(memory.states_BSD)))[..., 0]
    context_BD = (energy_BS.softmax(1)[:, :, None] * memory.states_BSD).sum(1)
    context_BD = torch.sigmoid(model.gate(before_BD)) * context_BD
    x_BE = model.embed(torch.full((2,), 3))
    read_BG = model.cell.input(x_BE) + context_BD @ model.cell.input_feeding.weight.t()
    expected_BD, _ = model.cell(read_BG, (before_BD, state[1][:, 0]))
    assert torch.allclose(hidden_BWD[:, 0], expected_BD, atol=1e-5)
    deep_BE = x_BE + model.from_hidden(expected_BD) + model.from_context(context_BD)
    assert torch.allclose(logits_BWV[:, 0], model.output(deep_BE), atol=1e-5)


def test_doubly_stochastic_attention_is_the_formula_of_the_paper() -> None:
    model, source = build(doubly_stochastic=0.5, dropout=0.0)
    target_BT = torch.tensor([[2, 4, 5, 6], [2, 7, 10, 10]])
    real_BT = torch.tensor([[True, True, True, True], [True, True, False, False]])
    with trace(model) as tape, target_padding(real_BT), collect_auxiliary() as found:
        model.train()(source, target_BT)
    weights_BTS = tape["decoder.cross"].weights_BHTS[:, 0].detach()
    expected = sum(0.5 * (1 - weights_BTS[row, :length].sum(0)).square().sum() for row, length in enumerate((4, 2)))
    [loss] = found.losses
    assert loss.item() == pytest.approx(expected.item() / 6, rel=1e-5)
    loss.backward()
    assert model.attention.score.query.weight.grad.abs().sum() > 0
    with collect_auxiliary() as nothing:
        model.eval()(source, target_BT)
    assert nothing.losses == []
    model, source = build(doubly_stochastic=0.0)
    with collect_auxiliary() as nothing:
        model.train()(source, target_BT)
    assert nothing.losses == []


def test_without_its_gate_it_reads_the_whole_context() -> None:
    model, source = build(context_gate=False)
    assert model.gate is None
    target_BT = torch.tensor([[2, 4], [2, 7]])
    plain = model.eval()(source, target_BT)
    with listen(model, "decoder.cross", lambda name, weights: torch.zeros_like(weights)):
        assert not torch.allclose(plain, model(source, target_BT))


def test_it_learns_to_name_the_bright_patch() -> None:
    torch.manual_seed(1)
    settings = toy("show-attend-tell", width=32, embedding_width=16, dropout=0.0, doubly_stochastic=0.0)
    model = models.build(settings, **PICTURES, target_vocabulary=10)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)

    def draw(count: int) -> tuple[SimpleNamespace, torch.Tensor, torch.Tensor]:
        place_B = torch.randint(6, (count,))
        pixels = torch.randn(count, 3, 2, 4, 3, 4) * 0.1  # [B, C, rows, Y, columns, X] of patches
        pixels[torch.arange(count), :, place_B // 3, :, place_B % 3] += 1.0
        source = SimpleNamespace(ids_BS=pixels.view(count, 3, 8, 12), mask_BS=torch.ones(count, 6, dtype=torch.bool))
        return source, torch.tensor([[2]]).expand(count, 1), place_B + 4

    for _ in range(300):
        source, target_BT, wanted_B = draw(32)
        loss = torch.nn.functional.cross_entropy(model(source, target_BT)[:, 0], wanted_B)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, target_BT, wanted_B = draw(200)
    with torch.no_grad():
        assert (model.eval()(source, target_BT)[:, 0].argmax(-1) == wanted_B).float().mean() > 0.97
