"""Effective attention: nothing that has an effect is lost, and the null space is as large as the theory says."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.analysis.effective_attention import effective_attention, seen_keys
from regard.errors import ModelError
from regard.layers.hooks import listen, trace
from tests.toys import TOYS, VARIANTS, build, close, sentences, tokens

HEADS, WIDTH = 2, 16

sizes = st.fixed_dictionaries(
    {"rows": st.integers(1, 4), "keys": st.integers(1, 14), "head_width": st.integers(1, 8), "seed": st.integers(0, 99)}
)


def draw(rows: int, keys: int, head_width: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, values and output projections of a head that might be."""
    torch.manual_seed(seed)
    weights_HTS = (2 * torch.randn(HEADS, rows, keys)).softmax(-1)
    return weights_HTS, torch.randn(HEADS, keys, head_width), torch.randn(HEADS, head_width, WIDTH)


@given(sizes)
@settings(deadline=None, max_examples=40)
def test_the_null_part_has_no_effect(size: dict[str, int]) -> None:
    weights, values, outward = draw(**size)
    found = effective_attention(weights, values, outward)
    close(found.effective_HTS + found.null_HTS, weights, 1e-6)
    close(found.effective_HTS @ values @ outward, weights @ values @ outward, 1e-5)
    close((found.effective_HTS * found.null_HTS).sum(-1), torch.zeros(HEADS, size["rows"]), 1e-6)


@given(sizes)
@settings(deadline=None, max_examples=40)
def test_dimensions_are_those_of_the_theory(size: dict[str, int]) -> None:
    """Brunner et al. 2020, section 3.1: S - K without, and S - K - 1 with the rows' sum held, never below zero."""
    found = effective_attention(*draw(**size))
    surplus = size["keys"] - size["head_width"]
    assert found.dimension_H.tolist() == [max(surplus, 0)] * HEADS
    assert found.freedom_H.tolist() == [max(surplus - 1, 0)] * HEADS
    assert found.identifiable_H.tolist() == [surplus <= 0] * HEADS
    assert (found.warning is None) == (surplus <= 0)


@given(sizes)
@settings(deadline=None, max_examples=40)
def test_raw_is_effective_in_a_short_sentence(size: dict[str, int]) -> None:
    weights, values, outward = draw(size["rows"], min(size["keys"], size["head_width"]), size["head_width"])
    close(effective_attention(weights, values, outward).effective_HTS, weights, 1e-6)


def test_a_case_by_hand() -> None:
    """Two tokens that give the same: what is between them cannot be told; the effective row halves the difference."""
    values = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    weights = torch.tensor([[[0.5, 0.1, 0.4]]])
    found = effective_attention(weights, values)
    close(found.effective_HTS, torch.tensor([[[0.3, 0.3, 0.4]]]))
    close(found.null_HTS, torch.tensor([[[0.2, -0.2, 0.0]]]))
    assert found.dimension_H.tolist() == [1]
    assert found.freedom_H.tolist() == [1]  # here the ones are a combination of the columns: all freedom is left


def test_repeated_tokens_are_not_identifiable_however_wide_the_head() -> None:
    weights, values, outward = draw(3, 5, 8)
    values[:, 4] = values[:, 1]
    found = effective_attention(weights, values, outward)
    assert found.dimension_H.tolist() == [1, 1]
    assert found.warning is not None
    assert found.warning.startswith("the values of the tokens are linearly dependent: in 2 of 2 heads")


def test_a_head_that_gives_nothing_has_no_effective_attention() -> None:
    weights, values, outward = draw(3, 5, 8)
    found = effective_attention(weights, values, torch.zeros_like(outward))
    assert not found.effective_HTS.any()
    assert found.dimension_H.tolist() == [5, 5]
    assert found.freedom_H.tolist() == [4, 4]
    assert found.as_dict()["correlation"] == [None, None]


def test_a_causal_row_uses_only_what_it_sees() -> None:
    """Row t sees t + 1 keys: its null space is theirs, and no weight moves to a key that comes later."""
    rows, head_width = 9, 4
    mask_TS = torch.ones(rows, rows, dtype=torch.bool).tril()
    weights, values, outward = draw(rows, rows, head_width)
    weights = (weights * mask_TS) / (weights * mask_TS).sum(-1, keepdim=True)
    assert torch.equal(seen_keys(weights), mask_TS)
    found = effective_attention(weights, values, outward, mask_TS)
    assert found.dimension_HT[0].tolist() == [max(row + 1 - head_width, 0) for row in range(rows)]
    assert found.freedom_HT[0].tolist() == [max(row - head_width, 0) for row in range(rows)]
    assert not found.effective_HTS[:, ~mask_TS].any()
    close(found.effective_HTS @ values @ outward, weights @ values @ outward, 1e-5)


def test_a_row_that_sees_nothing_stays_empty() -> None:
    weights, values, outward = draw(2, 6, 3)
    mask_TS = torch.tensor([[True] * 6, [False] * 6])
    weights[:, 1] = 0.0
    found = effective_attention(weights, values, outward, mask_TS)
    assert not found.effective_HTS[:, 1].any()
    assert found.dimension_HT.tolist() == [[3, 0]] * HEADS


@pytest.mark.parametrize("arch", ["transformer-tiny", "transformer-small", "window of 5", "bahdanau", "luong-general"])
def test_a_model_does_the_same_with_effective_weights(arch: str) -> None:
    """The effective part put in place of the weights of every attention: same logits."""
    model, source, target_BT = build((TOYS | VARIANTS)[arch]), sentences([9]), tokens(1, 7)
    with torch.no_grad(), trace(model) as tape:
        plain = model(source, target_BT)
    modules = {module.tap.name: module for module in model.modules() if hasattr(module, "tap")}
    for name, seen in tape.items():
        weights, values = seen.weights_BHTS[0], seen.value_BHSK[0]
        outward = getattr(modules[name], "out", None)
        slices = None if outward is None else outward.weight.T.unflatten(0, (len(values), -1))
        mask_TS = seen_keys(weights)
        found = effective_attention(weights, values, slices, mask_TS)
        assert found.dimension_HT[0].tolist() == (mask_TS.sum(-1) - values.shape[-1]).clamp(min=0).tolist()
        close(_with(model, name, found.effective_HTS, source, target_BT), plain, 1e-4)


def _with(model: torch.nn.Module, name: str, weights_HTS: Tensor, source: object, target_BT: Tensor) -> Tensor:
    """Logits when one attention uses these weights. A loop asks step by step."""
    step = iter(range(weights_HTS.shape[1]))

    def exchange(_: str, weights_BHTS: Tensor) -> Tensor:
        if weights_BHTS.shape[2] == weights_HTS.shape[1]:
            return weights_HTS[None]
        row = next(step)
        return weights_HTS[None, :, row : row + 1]

    with torch.no_grad(), listen(model, name, exchange):
        logits: Tensor = model(source, target_BT)
    return logits


def test_as_numbers() -> None:
    weights, values, outward = draw(2, 6, 3)
    found = json.loads(json.dumps(effective_attention(weights, values, outward).as_dict()))
    assert found["dimension"] == [3, 3]
    assert found["freedom"] == [2, 2]
    assert found["identifiable"] == [False, False]
    assert all(0 < value < 1 for value in found["correlation"])
    assert found["warning"] == (
        "there are more tokens (6) than dimensions of a head (3): in 2 of 2 heads a part of the weights (up to 3 of 6 "
        "dimensions) does not affect the output, so the raw weights do not show what the model uses; see the effective "
        "weights"
    )


def test_correlation_is_one_where_nothing_is_lost() -> None:
    close(effective_attention(*draw(3, 4, 6)).correlation_H, torch.ones(HEADS), 1e-6)


def test_maps_that_do_not_belong_together_are_refused() -> None:
    weights, values, outward = draw(2, 6, 3)
    with pytest.raises(ModelError, match="2 heads over 6 keys do not fit values of 2 heads and 5 keys"):
        effective_attention(weights, values[:, :5], outward)
