"""The data of pictures: positions, embeddings in the plane, entropies and the next-token table."""

from __future__ import annotations

import json
import math

import pytest
import torch

from regard.analysis.embedding_maps import embedding_table, picture_positions, plane, shift_rotation
from regard.analysis.trace import attention_entropy, next_tokens
from regard.errors import ModelError
from regard.layers.hooks import trace_states
from regard.layers.positional_encoding import sinusoids
from tests.toys import TOYS, VARIANTS, VOCABULARY, build, close, sentences, toy

# ---------------------------------------------------------------------------------------------------------------------
# Positions


def test_the_lectures_table() -> None:
    """The numbers that the lectures print for d = 50, positions 0 to 3, dimensions 0 to 3."""
    rows = picture_positions(build(TOYS["transformer-tiny"]), 4).rows_TD
    assert rows.shape[0] == 4
    assert rows[:, 0].tolist() == pytest.approx([0.0, 0.841, 0.909, 0.141], abs=5e-4)
    assert rows[:, 1].tolist() == pytest.approx([1.0, 0.540, -0.416, -0.990], abs=5e-4)


@pytest.mark.parametrize("shift", [0, 1, 7])
def test_the_rotation_leads_from_place_to_place(shift: int) -> None:
    table, turn = sinusoids(60, 10), shift_rotation(shift, 10)
    close(table[: 60 - shift] @ turn.T, table[shift:])
    close(turn @ turn.T, torch.eye(10))
    close(shift_rotation(2, 10) @ turn, shift_rotation(2 + shift, 10))


def test_dot_products_of_sinusoids_tell_the_distance() -> None:
    """Symmetric, largest on the diagonal (half the width: sin^2 + cos^2 a pair), the same along each diagonal."""
    dots = picture_positions(build(toy("transformer-tiny", width=20, heads=2)), 30).dots_TT
    close(dots, dots.T)
    close(dots.diagonal(), torch.full((30,), 10.0))
    close(dots[0, :10], dots[15, 15:25])
    assert (dots[0, 1:5] < dots[0, :4]).all()  # it falls with the distance, over the first ones


@pytest.mark.parametrize(
    ("settings", "kind", "turns"),
    [
        (TOYS["transformer-tiny"], "sinusoidal", True),
        (VARIANTS["learned positions"], "learned", False),
        (VARIANTS["rotary positions"], "rotary", True),
        (VARIANTS["concatenated positions"], "sinusoidal", True),
    ],
)
def test_every_kind_has_a_picture(settings, kind: str, turns: bool) -> None:  # type: ignore[no-untyped-def]
    found = picture_positions(build(settings), 12, shift=3)
    assert found.kind == kind
    assert found.dots_TT.shape == (12, 12)
    if turns:
        assert found.rotation_DD is not None
        close(found.rows_TD[:-3] @ found.rotation_DD.T, found.rows_TD[3:])
    else:
        assert found.rotation_DD is None


@pytest.mark.parametrize("settings", [TOYS["bahdanau"], VARIANTS["no positions"]])
def test_no_positions_no_picture(settings) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ModelError, match="no positional encodings"):
        picture_positions(build(settings), 4)


# ---------------------------------------------------------------------------------------------------------------------
# Embeddings in the plane


def test_points_in_a_plane_keep_their_distances() -> None:
    torch.manual_seed(0)
    points = torch.randn(20, 2).double() * torch.tensor([3.0, 1.0])
    turned = points @ torch.linalg.qr(torch.randn(7, 2).double())[0].T + 5.0
    found_N2, explained_2 = plane(turned)
    close(torch.cdist(found_N2, found_N2), torch.cdist(points, points), 1e-9)
    assert explained_2.sum().item() == pytest.approx(1.0)
    assert explained_2[0] > explained_2[1]


def test_the_plane_does_not_depend_on_signs_or_order() -> None:
    torch.manual_seed(0)
    vectors, order = torch.randn(15, 6), torch.randperm(15)
    close(plane(vectors[order])[0], plane(vectors)[0][order], 1e-9)


def test_a_single_point_is_the_origin() -> None:
    assert [part.tolist() for part in plane(torch.ones(1, 6))] == [[[0.0, 0.0]], [0.0, 0.0]]


@pytest.mark.parametrize("arch", ["transformer-tiny", "bahdanau", "bytenet", "deep-att"])
def test_the_table_is_what_the_first_layer_reads(arch: str) -> None:
    model, source = build(TOYS[arch]), sentences([6])
    with torch.no_grad(), trace_states(model, "encoder.embed") as states:
        model.encode(source)
    table = embedding_table(model)
    assert table.shape[0] == VOCABULARY
    placed = table[source.ids_BS[0]]
    if arch == "transformer-tiny":
        placed = placed + sinusoids(6, placed.shape[1])
    close(states["encoder.embed"][0], placed)


@pytest.mark.parametrize("arch", TOYS)
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_every_architecture_has_a_table(arch: str, side: str) -> None:
    assert embedding_table(build(TOYS[arch]), side).shape[0] == VOCABULARY


# ---------------------------------------------------------------------------------------------------------------------
# Entropy


def test_entropy_in_bits() -> None:
    """Even over 8 keys: 3 bits. One key: 0. A half and two quarters: 1.5 bits."""
    even, sharp = torch.full((8,), 1 / 8), torch.eye(8)[2]
    mixed = torch.tensor([0.5, 0.25, 0.25, 0, 0, 0, 0, 0])
    weights = torch.stack([even, sharp, mixed])[:, None]
    found = attention_entropy(weights)
    assert found.bits_H.tolist() == pytest.approx([3.0, 0.0, 1.5])
    assert found.evenness_H.tolist() == pytest.approx([1.0, 0.0, 0.5])


def test_rows_are_measured_against_what_they_see() -> None:
    """A causal head that looks everywhere alike is wholly even, though its first rows have few bits."""
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    weights = (mask / mask.sum(-1, keepdim=True))[None]
    found = attention_entropy(weights)
    assert found.evenness_H.tolist() == pytest.approx([1.0])
    assert found.bits_H.tolist() == pytest.approx([(0 + 1 + math.log2(3) + 2) / 4])


def test_a_row_without_a_choice_is_even() -> None:
    assert attention_entropy(torch.ones(2, 1, 1)).evenness_H.tolist() == [1.0, 1.0]


# ---------------------------------------------------------------------------------------------------------------------
# Next tokens


def test_the_table_of_next_tokens() -> None:
    """Columns in the order in which tokens become likely; what has no column is the rest."""
    probability = torch.tensor([[0.1, 0.6, 0.3, 0.0], [0.7, 0.1, 0.15, 0.05]]).double()
    found = next_tokens(probability.log(), "abcd".__getitem__, top=2)
    assert found["tokens"] == ["b", "c", "a"]
    assert found["ids"] == [1, 2, 0]
    assert found["probability"] == [[0.6, 0.3, 0.1], [0.1, 0.15, 0.7]]
    assert found["rest"] == [0.0, 0.05]
    assert found["best"] == [[0, 1], [2, 1]]
    assert found["bits"][0] == round(-(0.1 * math.log2(0.1) + 0.6 * math.log2(0.6) + 0.3 * math.log2(0.3)), 4)
    assert json.loads(json.dumps(found)) == found


def test_no_more_columns_than_tokens() -> None:
    found = next_tokens(torch.zeros(1, 3).log_softmax(-1), str, top=10)
    assert sorted(found["tokens"]) == ["0", "1", "2"]
    assert found["rest"] == [0.0]
