"""Deep-Att beside the sentences of its paper (Zhou et al. 2016)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import models
from regard.layers.hooks import attention_hooks, trace, trace_states
from regard.layers.rnn_cells import LSTM
from regard.models import settings_of
from regard.models.base import count_parameters
from regard.models.deep_att import Column, DeepAtt, DeepAttSettings
from tests.toys import VOCABULARY, build, check_gradients, close, sentences, step_operations, tokens, toy, walk

PAPER = {"encoder_layers": 9, "decoder_layers": 7, "width": 512, "embedding_width": 256, "dropout": 0.1}
"""Section 4.2: "All LSTM layers, including the 2 x n_e layers encoder and 1 x n_d layers decoder, have 512 memory
cells"; 256-dimensional word embeddings; n_e = 9, n_d = 7."""


def small(**changes: Any) -> DeepAtt:
    model = build(toy("deep-att", **changes))
    assert isinstance(model, DeepAtt)
    return model


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("training", [False, True])
def test_gradients_are_those_of_finite_differences(fast_forward: bool, training: bool) -> None:
    sizes = {"width": 4, "embedding_width": 3, "encoder_layers": 3, "decoder_layers": 2, "dropout": 0.0}
    check_gradients(small(**sizes, fast_forward=fast_forward).train(training))


@torch.no_grad()
def test_steps_equal_forward_at_the_papers_depth() -> None:
    model, source, target_BWT = small(encoder_layers=9, decoder_layers=7), sentences([7, 4, 1]), tokens(3, 4, 5)
    together = walk(model, source, target_BWT)
    for beam in range(4):
        close(together[:, beam], model(source, target_BWT[:, beam]))


# ---------------------------------------------------------------------------------------------------------------------
# The encoder


@torch.no_grad()
def test_directions_alternate_and_the_columns_are_opposite() -> None:
    """Layer k of a column: a token that changes is felt after it or before it, in turn; in the other column reversed.

    Each layer is run alone, on random input: the layers below it have already carried everything everywhere.
    """
    model = small(encoder_layers=4)
    assert len(model.encoder.columns) == 2
    assert [column.backward for column in model.encoder.columns] == [
        [False, True, False, True],
        [True, False, True, False],
    ]
    for column in model.encoder.columns:
        for layer, backward in enumerate(column.backward):
            x_SBD = torch.randn(7, 1, column.layers[layer].input.in_features)
            other = x_SBD.clone()
            other[3] += 1.0
            gap_S = (column.run(layer, x_SBD, None).h_SBD - column.run(layer, other, None).h_SBD).abs().amax((1, 2))
            assert (gap_S > 0).tolist() == [place <= 3 if backward else place >= 3 for place in range(7)]


@torch.no_grad()
def test_an_encoder_of_two_layers_by_hand() -> None:
    """Section 3.1: f = W [half f; h] above the first layer; e = [f; h] of both columns, projected to a quarter."""
    model, source = small(encoder_layers=2), sentences([5])
    encoder = model.encoder
    x_SE = encoder.embed(source.ids_BS[0])
    parts = []
    for column in encoder.columns:
        below, h_SD = x_SE, torch.zeros(0)
        for cell, backward in zip(column.layers, column.backward, strict=True):
            f_SG = below @ cell.input.weight.t() + cell.input.bias
            state = cell.start(1)
            rows: list[Tensor] = [torch.zeros(0)] * 5
            for place in reversed(range(5)) if backward else range(5):
                state = cell(f_SG[place : place + 1], state)
                rows[place] = state[0][0]
            h_SD = torch.stack(rows)
            write, _, candidate, _ = f_SG.chunk(4, dim=-1)
            below = torch.cat([write, candidate, h_SD], dim=-1)
        parts += [f_SG, h_SD]
    memory = model.encode(source)
    close(memory.states_BSD[0], encoder.project(torch.cat(parts, dim=-1)))
    assert memory.states_BSD.shape[-1] == (2 * (4 + 1) * 16) // 4


@torch.no_grad()
def test_the_fast_forward_path_is_linear_from_the_embeddings_to_the_top() -> None:
    """With all hidden states at zero, f of the top layer is an affine function of the embeddings."""
    settings = toy("deep-att", encoder_layers=9)
    assert isinstance(settings, DeepAttSettings)
    encoder = small(encoder_layers=9).encoder

    def top_f(column: Column, x_SBE: Tensor) -> Tensor:
        for layer in range(9):
            output = column.run(layer, x_SBE, None)
            x_SBE = encoder.stacking(output._replace(h_SBD=torch.zeros_like(output.h_SBD)))
        return output.f_SBG

    one, other = torch.randn(2, 6, 1, settings.embedding_width)
    for column in encoder.columns:
        zero = top_f(column, torch.zeros_like(one))
        ours = top_f(column, 2.0 * one - 3.0 * other) - zero
        theirs = 2.0 * (top_f(column, one) - zero) - 3.0 * (top_f(column, other) - zero)
        close(ours, theirs, 1e-4 * max(1.0, theirs.abs().max().item()))
        assert ours.abs().max() > 1e-3
        moved = top_f(column, one + torch.eye(6)[3][:, None, None]) - top_f(column, one)
        assert moved.abs().amax((1, 2)).gt(0).tolist() == [
            False,
            False,
            False,
            True,
            False,
            False,
        ]  # each position alone


@torch.no_grad()
@pytest.mark.parametrize(("fast_forward", "least", "most"), [(True, 0.4, 3.0), (False, 0.0, 0.1)])
def test_fast_forward_connections_keep_the_variance_of_the_input(fast_forward: bool, least: float, most: float) -> None:
    """The f of layer 16 has about the variance of layer 1; without the connections, little is left."""
    torch.manual_seed(1)
    settings = toy("deep-att", width=64, embedding_width=64, encoder_layers=16, fast_forward=fast_forward)
    model = models.build(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY).eval()
    assert isinstance(model, DeepAtt)
    column, x_SBD = model.encoder.columns[0], torch.randn(20, 4, 64)
    variances = []
    for layer in range(16):
        output = column.run(layer, x_SBD, None)
        variances.append(output.f_SBG[..., :64].var().item())
        x_SBD = model.encoder.stacking(output)
    assert least < variances[-1] / variances[0] < most


@torch.no_grad()
def test_the_states_of_all_layers_can_be_seen() -> None:
    model, source = small(encoder_layers=3), sentences([6, 4])
    with trace_states(model, "encoder.*") as states:
        model(source, tokens(2, 5))
    assert [*states] == ["encoder.embed", "encoder.0", "encoder.1", "encoder.2", "encoder.top"]
    assert all(states[f"encoder.{layer}"].shape == (2, 6, 32) for layer in range(3))


# ---------------------------------------------------------------------------------------------------------------------
# The decoder


@torch.no_grad()
def test_the_attention_is_that_of_the_bottom_layer() -> None:
    """Additive, over the projected source; the query is the hidden state of the bottom layer at the step before."""
    model, source, target_BT = small(), sentences([6, 4]), tokens(2, 5)
    assert list(attention_hooks(model)) == ["decoder.cross"]
    with trace(model, "decoder.cross") as tape:
        model(source, target_BT)
    seen = tape["decoder.cross"]
    close(seen.weights_BHTS.sum(-1), torch.ones(2, 1, 5))
    assert not seen.weights_BHTS[1, 0, :, 4:].any()
    close(seen.value_BHSK[:, 0], model.encode(source).states_BSD, 0)
    state = model.bottom.start(1)
    for place in range(5):
        close(seen.query_BHTK[:1, 0, place], state[0])
        read = model.bottom.input(model.embed(target_BT[:1, place]))
        state = model.bottom(model.bottom.feed_in(read, seen.output_BHTK[:1, 0, place]), state)


@torch.no_grad()
def test_only_the_hidden_state_of_the_top_layer_is_read_by_the_output() -> None:
    """Section 3.1: "at the last LSTM layer, we only use h for making the prediction with a softmax layer"."""
    model, source, target_BT = small(), sentences([6]), tokens(1, 5)
    assert model.output.in_features == 16
    with trace_states(model, "decoder.top") as states:
        model(source, target_BT)
    assert states["decoder.top"].abs().max() < 1.0  # an LSTM's hidden state, no gate input


def test_dropout_is_not_on_the_linear_path() -> None:
    model = small(dropout=0.5).train()
    stacked: list[Tensor] = []
    for cell in (module for module in model.modules() if isinstance(module, LSTM) and module.input.in_features == 48):
        cell.input.register_forward_pre_hook(lambda module, x: stacked.append(x[0]))
    model(sentences([9] * 8), tokens(8, 9))
    assert len(stacked) == 2 * 2 + 2
    for x_SBD in stacked:
        half, h_SBD = x_SBD.split([32, 16], dim=-1)
        assert half.ne(0).all()
        assert h_SBD.eq(0).float().mean().item() == pytest.approx(0.5, abs=0.08)


def test_a_step_costs_the_same_at_every_length() -> None:
    assert len(set(step_operations(small(), sentences([6, 4]), (1, 2, 20)))) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Sizes


def test_the_papers_sizes() -> None:
    """Section 4.2: "the dimension of c_t is ... 1280" for Deep-Att; layer depth 9 + 7 = 16.

    The paper prints no number of parameters. By its equations: W_f of 2048 x 256, 2048 x 1536 or (decoder, layer 1)
    2048 x (256 + 1280), W_r of 2048 x 512, W_p of 1280 x 5120. Vocabularies: 30,000 words on each side.
    """
    settings = dataclasses.replace(settings_of("deep-att"), **PAPER)
    assert isinstance(settings, DeepAttSettings)
    assert settings.memory_width == 1280
    words = 30_000
    with torch.device("meta"):
        model = models.build(settings, source_vocabulary=words, target_vocabulary=words)
    recurrent, upper = 2048 * 512, 2048 * 1536
    encoder = 2 * (2048 * 256 + 8 * upper + 9 * recurrent) + 1280 * 5120
    decoder = 2048 * (256 + 1280) + 6 * upper + 7 * recurrent
    attention = 512 * 512 + 1280 * 512 + 512
    by_hand = encoder + decoder + attention + words * (256 + 256 + 512)
    assert count_parameters(model) == pytest.approx(by_hand, rel=0.001)  # and biases


@torch.no_grad()
def test_one_layer_on_each_side_is_enough() -> None:
    model, source, target_BT = small(encoder_layers=1, decoder_layers=1), sentences([3]), tokens(1, 4)
    close(walk(model, source, target_BT[:, None])[:, 0], model(source, target_BT))
