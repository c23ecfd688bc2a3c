"""Positions: the printed tables, turning, growing past what was seen, refusing, joining."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ModelError
from regard.layers.attention import SelfAttention
from regard.layers.positional_encoding import (
    AddPositions,
    ConcatenatePositions,
    LearnedEncoding,
    NoPositions,
    RotaryEncoding,
    SinusoidalEncoding,
    position_layer,
    sinusoids,
)
from tests.toys import close


@pytest.mark.parametrize("width", [2, 7, 20, 50])
def test_sinusoids_are_the_formula(width: int) -> None:
    table = sinusoids(40, width)
    for place in range(40):
        for dim in range(width):
            angle = place / 10000 ** (dim // 2 * 2 / width)
            expected = math.sin(angle) if dim % 2 == 0 else math.cos(angle)
            assert table[place, dim].item() == pytest.approx(expected, abs=1e-6)


def test_far_positions_stay_exact() -> None:
    """In single precision, sin(100003) would already be off in the third digit."""
    assert sinusoids(1, 8, start=100_003)[0, 0].item() == pytest.approx(math.sin(100_003), abs=1e-6)


@given(start=st.integers(0, 500), length=st.integers(1, 300))
def test_a_window_of_the_table_is_the_table(start: int, length: int) -> None:
    rows = SinusoidalEncoding(10)
    close(rows(length, start), sinusoids(start + length, 10)[start:])


def test_the_table_grows_past_the_longest_sentence_seen() -> None:
    rows = SinusoidalEncoding(10)
    short = rows(5).clone()
    close(rows(1000), sinusoids(1000, 10))
    close(rows(5), short)


def test_sinusoids_are_not_stored_with_the_weights() -> None:
    rows = SinusoidalEncoding(10)
    rows(5)
    assert not rows.state_dict()


def test_rows_that_grew_while_translating_serve_training() -> None:
    """A table made in inference mode could not take part in a gradient."""
    turn, x_BHTK = RotaryEncoding(4), torch.randn(1, 1, 3, 4, requires_grad=True)
    with torch.inference_mode():
        turn(x_BHTK)
    turn(x_BHTK).sum().backward()
    assert x_BHTK.grad is not None


def test_the_table_follows_the_model_to_another_precision() -> None:
    rows = SinusoidalEncoding(10).double()
    assert rows(5).dtype == torch.float64


@pytest.mark.parametrize("step", [1, 5, 40])
def test_a_shift_is_a_rotation_that_does_not_depend_on_the_place(step: int) -> None:
    """PE(pos + k) = M_k PE(pos), with M_k made of one turn a pair of dimensions."""
    angles = [step / 10000 ** (2 * pair / 10) for pair in range(5)]
    turn = torch.block_diag(*(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in angles))
    table = sinusoids(400, 10)
    close(table[:-step] @ turn.T, table[step:])


def test_learned_rows_are_the_weights() -> None:
    rows = LearnedEncoding(6, 10)
    close(rows(3, 4), rows.embed.weight[4:7])


def test_learned_positions_refuse_a_longer_sentence() -> None:
    rows = LearnedEncoding(6, 10)
    assert rows(10).shape == (10, 6)
    with pytest.raises(
        ModelError, match="a sentence of 11 tokens is longer than the 10 learned positions; split it, or"
    ):
        rows(11)
    with pytest.raises(ModelError, match="a sentence of 11 tokens"):
        rows(1, start=10)


@given(first=st.integers(0, 60), second=st.integers(0, 60), shift=st.integers(0, 400), seed=st.integers(0, 99))
def test_rotary_scores_depend_on_distance_alone(first: int, second: int, shift: int, seed: int) -> None:
    torch.manual_seed(seed)
    turn, query, key = RotaryEncoding(8), torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    score = (turn(query, first) * turn(key, second)).sum()
    shifted = (turn(query, first + shift) * turn(key, second + shift)).sum()
    close(score, shifted, 1e-4)


def test_rotary_turns_and_does_not_stretch() -> None:
    turn, x_BHTK = RotaryEncoding(8), torch.randn(2, 3, 50, 8)
    close(turn(x_BHTK).norm(dim=-1), x_BHTK.norm(dim=-1))
    close(turn(x_BHTK)[:, :, 0], x_BHTK[:, :, 0])  # the first place is turned by nothing
    assert (turn(x_BHTK)[:, :, 1:] - x_BHTK[:, :, 1:]).abs().max() > 0.1


def test_rotary_needs_pairs() -> None:
    with pytest.raises(ModelError, match="an even head width, not 5"):
        RotaryEncoding(5)


def test_adding() -> None:
    x_BTD = torch.randn(2, 3, 6)
    close(AddPositions(SinusoidalEncoding(6))(x_BTD, 4), x_BTD + sinusoids(3, 6, 4))


def test_concatenating_is_a_sum_of_two_maps() -> None:
    layer, x_BTD = ConcatenatePositions(SinusoidalEncoding(4), 6, 4), torch.randn(2, 3, 6)
    token, place = layer.join.weight[:, :6], layer.join.weight[:, 6:]
    close(layer(x_BTD, 2), x_BTD @ token.T + sinusoids(3, 4, 2) @ place.T)


def test_concatenating_starts_from_the_token_as_it_is() -> None:
    layer = ConcatenatePositions(SinusoidalEncoding(4), 6, 4)
    close(layer.join.weight[:, :6], torch.eye(6))
    assert layer.join.weight[:, 6:].abs().max() > 0


def test_the_layer_is_chosen_by_name() -> None:
    assert isinstance(position_layer("none", "add", 16, 9), NoPositions)
    assert isinstance(position_layer("rotary", "add", 16, 9), NoPositions)  # queries and keys are turned instead
    added = position_layer("learned", "add", 16, 9)
    assert isinstance(added, AddPositions)
    assert isinstance(added.positions, LearnedEncoding)
    beside = position_layer("sinusoidal", "concatenate", 16, 9)
    assert isinstance(beside, ConcatenatePositions)
    assert beside.join.weight.shape == (16, 16 + 4)  # a quarter of the width


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
@pytest.mark.parametrize("join", ["add", "concatenate"])
@pytest.mark.parametrize("width", [2, 6, 16])
def test_any_width_can_be_placed(kind: str, join: str, width: int) -> None:
    x_BTD = torch.randn(2, 3, width)
    placed = position_layer(kind, join, width, 9)(x_BTD)
    assert placed.shape == x_BTD.shape
    assert not torch.equal(placed, x_BTD)


@given(seed=st.integers(0, 999))
def test_without_positions_order_is_unsaid(seed: int) -> None:
    """Permuting the input of self-attention permutes its output and changes nothing else."""
    torch.manual_seed(seed)
    layer, x_BTD, order = SelfAttention(8, 2, 4, "here"), torch.randn(2, 6, 8), torch.randperm(6)
    place = position_layer("none", "add", 8, 9)
    close(layer(place(x_BTD[:, order])), layer(place(x_BTD))[:, order])


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rotary"])
def test_with_positions_order_is_said(kind: str) -> None:
    layer = SelfAttention(8, 2, 4, "here", rotary=RotaryEncoding(4) if kind == "rotary" else None)
    place, x_BTD = position_layer(kind, "add", 8, 9), torch.randn(2, 6, 8)
    turned = layer(place(x_BTD.flip(1))).flip(1)
    assert (turned - layer(place(x_BTD))).abs().max() > 1e-2
