"""The measured table of layers against Table 1 of "Attention Is All You Need", and against counts made by hand."""

import json

import pytest

from regard.analysis.complexity import LAYER_KINDS, LENGTHS, WIDTHS, complexity_table, exponent, layers_to_connect

THEORY = {
    # layer: exponents of n and of d in the operations, of n in sequential operations and path length (Table 1)
    "self-attention": (2, 1, 0, 0),
    "recurrent (LSTM)": (1, 2, 1, 1),
    "convolutional, k = 3": (1, 2, 0, 1),
    "restricted self-attention, r = 16": (1, 1, 0, 1),
}


@pytest.fixture(scope="module")
def table():
    return {row["layer"]: row for row in complexity_table()}


@pytest.mark.parametrize("layer", THEORY)
def test_measured_exponents_are_those_of_the_paper(table, layer):
    names = ("operations_exponent", "width_exponent", "sequential_exponent", "path_exponent")
    assert tuple(table[layer][name] for name in names) == pytest.approx(THEORY[layer], abs=0.03)


def test_operations_are_those_counted_by_hand(table):
    n, d = LENGTHS[0], WIDTHS[0]
    assert table["self-attention"]["flops"][0] == 2 * 2 * n * n * d  # scores and sums
    assert table["recurrent (LSTM)"]["flops"][0] == 2 * 8 * n * d * d  # four gates of input and state
    assert table["convolutional, k = 3"]["flops"][0] == 2 * 3 * n * d * d


def test_dilated_convolutions_connect_in_a_logarithm_of_layers(table):
    assert table["convolutional, dilated, k = 3"]["layers"] == [4, 5, 6]  # the least m with 3^m >= n
    assert table["convolutional, k = 3"]["layers"] == [32, 64, 128]  # each layer reaches two tokens further


def test_one_layer_of_attention_connects_all_positions():
    assert layers_to_connect(LAYER_KINDS[0], 33) == 1


def test_the_table_is_plain_data(table):
    assert json.loads(json.dumps(list(table.values()))) == list(table.values())


def test_exponent_of_a_power():
    assert exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2.0)
    assert exponent([1, 2, 4], [7, 7, 7]) == 0.0
