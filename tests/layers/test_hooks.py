"""Taps: what can be seen, what may be replaced, and that nothing is left behind."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.errors import ModelError
from regard.layers.attention import SelfAttention
from regard.layers.hooks import (
    AttentionHook,
    AttentionRecord,
    attention_hooks,
    listen,
    match_hooks,
    trace,
    without_heads,
)
from regard.models.base import Seq2Seq
from tests.toys import TOYS, Sentences, build, close, sentences, tokens, walk


@pytest.fixture
def model() -> Seq2Seq:
    return build(TOYS["transformer-small"])  # three encoder blocks, two decoder blocks, four heads of four


@pytest.fixture
def source() -> Sentences:
    return sentences([6, 3])


def test_a_tap_is_idle_until_somebody_attaches_and_after_he_leaves() -> None:
    tap, passed = AttentionHook("here"), []
    assert tap.idle
    with tap.attached(listener=lambda name, weights: None):
        with tap.attached(recorder=passed.append):
            assert not tap.idle
        assert not tap.idle
        assert not tap.recorders
    assert tap.idle
    assert not tap.listeners


def test_a_tap_is_idle_again_after_an_error(model: Seq2Seq, source: Sentences) -> None:
    def refuse(name: str, weights: Tensor) -> Tensor:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"), listen(model, "*", refuse):
        model(source, tokens(2, 3))
    assert all(tap.idle and not tap.listeners for tap in attention_hooks(model).values())


def test_an_idle_tap_never_sees_weights(model: Seq2Seq, source: Sentences, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nobody looks, weights do not exist: everything goes through the fused kernel."""

    def fail(*_: object) -> None:
        pytest.fail("weights were computed although nobody looks")

    monkeypatch.setattr("regard.layers.attention.masked_softmax", fail)
    model(source, tokens(2, 3))
    walk(model, source, tokens(2, 2, 3))


def test_names_follow_the_layers(model: Seq2Seq) -> None:
    assert list(attention_hooks(model)) == [
        *("encoder.0.self", "encoder.1.self", "encoder.2.self"),
        *("decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross"),
    ]


def test_patterns_choose(model: Seq2Seq) -> None:
    chosen = match_hooks(model, ["decoder.*.cross", "encoder.0.self", "decoder.0.*"])
    assert [tap.name for tap in chosen] == ["decoder.0.cross", "decoder.1.cross", "encoder.0.self", "decoder.0.self"]


def test_a_pattern_that_matches_nothing_names_the_nearest(model: Seq2Seq) -> None:
    with pytest.raises(ModelError, match=r'named "decoder.1.crosss"; did you mean "decoder.1.cross"\?'):
        match_hooks(model, ["encoder.*", "decoder.1.crosss"])


def test_a_pattern_far_from_everything_lists_what_there_is(model: Seq2Seq) -> None:
    with pytest.raises(ModelError, match=r'named "xyz"; there are encoder.0.self, encoder.1.self'):
        match_hooks(model, "xyz")


def test_a_trace_holds_what_passed(model: Seq2Seq, source: Sentences) -> None:
    with trace(model, "decoder.1.cross") as tape:
        model(source, tokens(2, 5))
    assert list(tape) == ["decoder.1.cross"]
    seen = tape["decoder.1.cross"]
    assert isinstance(seen, AttentionRecord)
    assert seen.name == "decoder.1.cross"
    assert seen.query_BHTK.shape == (2, 4, 5, 4)
    assert seen.key_BHSK.shape == seen.value_BHSK.shape == (2, 4, 6, 4)
    assert seen.weights_BHTS.shape == (2, 4, 5, 6)
    close(seen.weights_BHTS @ seen.value_BHSK, seen.output_BHTK)


def test_a_tape_keeps_every_pass_in_order(model: Seq2Seq, source: Sentences) -> None:
    target_BT = tokens(2, 5)
    with trace(model, "decoder.*") as stepwise:
        walk(model, source, target_BT[:, None])
    with trace(model, "decoder.*") as at_once:
        model(source, target_BT)
    for name in at_once:
        assert len(stepwise.calls[name]) == 5
        close(stepwise.steps(name), at_once[name].weights_BHTS)


def test_gradients_flow_through_recorded_weights() -> None:
    layer = SelfAttention(8, 2, 4, "here")
    with trace(layer) as tape:
        output = layer(torch.randn(1, 3, 8))
    (gradient,) = torch.autograd.grad(output.square().sum(), tape["here"].weights_BHTS)
    assert gradient.abs().max() > 0


def test_listeners_take_turns_and_recorders_see_the_result(model: Seq2Seq, source: Sentences) -> None:
    def turn(factor: float) -> Callable[[str, Tensor], Tensor]:
        return lambda name, weights: weights * factor + factor

    with trace(model, "encoder.0.self") as untouched:
        model(source, tokens(2, 3))
    with (
        listen(model, "encoder.0.self", turn(2.0)),
        listen(model, "encoder.0.self", turn(3.0)),
        trace(model, "encoder.0.self") as tape,
    ):
        model(source, tokens(2, 3))
    expected = (untouched["encoder.0.self"].weights_BHTS * 2 + 2) * 3 + 3
    close(tape["encoder.0.self"].weights_BHTS, expected)


def test_replaced_weights_are_used() -> None:
    """A listener that looks at the first token alone makes every output the first value."""
    layer, x_BTD = SelfAttention(8, 2, 4, "here"), torch.randn(2, 5, 8)

    def look_at_first(name: str, weights_BHTS: Tensor) -> Tensor:
        replaced = torch.zeros_like(weights_BHTS)
        replaced[..., 0] = 1.0
        return replaced

    with listen(layer, "here", look_at_first), trace(layer) as tape:
        layer(x_BTD)
    close(tape["here"].output_BHTK, tape["here"].value_BHSK[:, :, :1].expand(-1, -1, 5, -1))


def test_replaced_weights_keep_their_shape(model: Seq2Seq, source: Sentences) -> None:
    with (
        pytest.raises(ModelError, match=r"decoder.0.cross: a listener returned weights .* instead of \(2, 4, 3, 6\)"),
        listen(model, "decoder.0.cross", lambda name, weights: weights[:, :1]),
    ):
        model(source, tokens(2, 3))


@pytest.mark.parametrize("head", [4, -1])
def test_a_head_that_does_not_exist_is_refused(model: Seq2Seq, source: Sentences, head: int) -> None:
    with (
        pytest.raises(ModelError, match=f"encoder.0.self has heads 0 to 3; there is no head {head}"),
        listen(model, "*", without_heads(head)),
    ):
        model(source, tokens(2, 3))


def test_switching_heads_off_leaves_the_given_weights_alone() -> None:
    weights_BHTS = torch.ones(1, 3, 2, 2)
    switched = without_heads(0, 2)("here", weights_BHTS)
    assert switched.sum(dim=(0, 2, 3)).tolist() == [0, 4, 0]
    assert weights_BHTS.sum() == 12


def test_a_copy_of_a_model_has_taps_of_its_own(model: Seq2Seq, source: Sentences) -> None:
    twin = copy.deepcopy(model)
    with trace(model) as tape:
        twin(source, tokens(2, 3))
    assert not tape


def test_a_model_without_attention_shows_nothing_and_says_so_when_asked() -> None:
    model = build(TOYS["seq2seq-lstm"])
    with trace(model) as tape:
        model(sentences([3, 5]), tokens(2, 4))
    assert tape == {}
    with pytest.raises(ModelError, match="there are none"), trace(model, "decoder.*"):
        pass
