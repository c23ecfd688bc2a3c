"""Pruning: a model without heads says what the whole one says with these heads switched off."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import settings as example_budget
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from regard import models
from regard.analysis.pruning import Kept, attentions, pruned_settings, pruned_weights, strongest
from regard.config import ModelSettings
from regard.errors import ModelError, SettingsError
from regard.layers.hooks import attention_hooks, listen, without_heads
from regard.models.base import Seq2Seq, count_parameters
from regard.models.transformer_settings import TransformerSettings
from regard.run import restore
from regard.training.flops import count_cost
from tests.toys import TOYS, VARIANTS, VOCABULARY, build, close, map_tree, sentences, tokens, walk

TRANSFORMERS = {name: case for name, case in (TOYS | VARIANTS).items() if isinstance(case, TransformerSettings)}
SMALL = VARIANTS["rotary positions"]
every_transformer = pytest.mark.parametrize("settings", TRANSFORMERS.values(), ids=TRANSFORMERS.keys())


def pruned(settings: TransformerSettings, kept: Kept) -> tuple[Seq2Seq, Seq2Seq]:
    """The whole model and the one without the other heads, built from its settings alone."""
    whole = build(settings)
    part = models.build(
        pruned_settings(settings, kept), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY
    ).eval()
    restore(part, pruned_weights(whole, kept), where="test")
    return whole, part


def some_heads(settings: TransformerSettings) -> dict[str, tuple[int, ...]]:
    """Half of the heads of most attentions, none of some, all of the last."""
    names = settings.attentions
    kept: dict[str, tuple[int, ...]] = {name: tuple(range(0, settings.heads, 2)) for name in names[:-1]}
    return kept | {names[1]: (), names[3]: (), names[4]: ()}


@every_transformer
@torch.no_grad()
def test_pruning_nothing_leaves_the_logits_untouched(settings: TransformerSettings) -> None:
    everything = {name: tuple(range(settings.heads)) for name in settings.attentions}
    source, target_BT = sentences([7, 4, 1]), tokens(3, 5)
    for kept in ({}, everything):
        assert pruned_settings(settings, kept) == settings
        whole, part = pruned(settings, kept)
        assert torch.equal(part(source, target_BT), whole(source, target_BT))


@every_transformer
@torch.no_grad()
def test_a_pruned_model_is_the_whole_one_with_heads_switched_off(settings: TransformerSettings) -> None:
    kept = some_heads(settings)
    whole, part = pruned(settings, kept)
    source, target_BT = sentences([7, 4, 1]), tokens(3, 5)

    def switch_off(name: str, weights_BHTS: Tensor) -> Tensor | None:
        gone = [head for head in range(settings.heads) if head not in kept.get(name, range(settings.heads))]
        return without_heads(*gone)(name, weights_BHTS)

    with listen(whole, "*", switch_off):
        expected = whole(source, target_BT)
    close(part(source, target_BT), expected, 2e-5)
    assert count_parameters(part) < count_parameters(whole)


@example_budget(max_examples=15)
@given(data=st.data())
@torch.no_grad()
def test_whatever_is_pruned_steps_equal_forward(data: st.DataObject) -> None:
    assert isinstance(SMALL, TransformerSettings)
    kept = {name: data.draw(st.sets(st.integers(0, 3))) for name in SMALL.attentions}
    _, part = pruned(SMALL, {name: sorted(heads) for name, heads in kept.items()})
    source, target_BWT = sentences([5, 3]), tokens(2, 3, 4)
    stepwise = walk(part, source, target_BWT)
    for beam in range(3):
        close(stepwise[:, beam], part(source, target_BWT[:, beam]))


@torch.no_grad()
def test_a_model_without_any_head_still_counts_and_reorders() -> None:
    """Positions come from the caches, which then hold nothing."""
    settings = VARIANTS["learned positions"]
    assert isinstance(settings, TransformerSettings)
    _, part = pruned(settings, dict.fromkeys(settings.attentions, ()))
    assert not attention_hooks(part)
    source, target_BWT = sentences([5, 3]), tokens(2, 3, 6)
    close(walk(part, source, target_BWT)[:, 1], part(source, target_BWT[:, 1]))
    order, memory = [2, 0, 0], part.encode(source)
    state = map_tree(lambda x: x.repeat_interleave(3, dim=1), part.start(memory))
    _, state = part.step(tokens(2, 3), state, memory)
    assert state.caches[0].length == 1
    following = tokens(2, 3)
    straight, _ = part.step(following, state, memory)
    reordered, _ = part.step(following[:, order], map_tree(lambda x: x[:, order], state), memory)
    close(reordered, straight[:, order])


def test_what_is_left_learns() -> None:
    assert isinstance(SMALL, TransformerSettings)
    _, part = pruned(SMALL, some_heads(SMALL))
    target_BT = tokens(3, 5)
    F.cross_entropy(part.train()(sentences([7, 4, 1]), target_BT).flatten(0, 1), target_BT.flatten()).backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in part.parameters())


def test_arithmetic_counts_the_heads_that_are_left() -> None:
    assert isinstance(SMALL, TransformerSettings)
    whole, part = pruned(SMALL, dict.fromkeys(SMALL.attentions, (0,)))
    assert count_cost(part)["cross_pair"] == count_cost(whole)["cross_pair"] / 4
    _, none = pruned(SMALL, dict.fromkeys(SMALL.attentions, ()))
    assert count_cost(none)["source_pair"] == 0


def test_a_pruned_model_can_be_pruned_again() -> None:
    assert isinstance(SMALL, TransformerSettings)
    first = {"encoder.0.self": (1, 3), "decoder.0.cross": (2,)}
    settings = pruned_settings(SMALL, first)
    assert settings.remaining_heads == (("encoder.0.self", 2), ("decoder.0.cross", 1))
    _, once = pruned(SMALL, first)
    twice = pruned_weights(once, {"encoder.0.self": (1,)})
    assert pruned_settings(settings, {"encoder.0.self": (1,)}).heads_in("encoder.0.self") == 1
    straight = pruned_weights(build(SMALL), {"encoder.0.self": (3,), "decoder.0.cross": (2,)})
    assert all(torch.equal(twice[name], straight[name]) for name in straight)


def test_what_cannot_be_kept() -> None:
    model = build(SMALL)
    assert list(attentions(model)) == list(SMALL.attentions)  # type: ignore[union-attr]
    for kept, message in (
        ({"encoder.0.cros": (0,)}, 'no attention layer "encoder.0.cros" to prune'),
        ({"encoder.0.self": (4,)}, r"encoder.0.self: cannot keep heads \[4\]: list heads 0 to 3"),
        ({"encoder.0.self": (1, 1)}, r"cannot keep heads \[1, 1\]"),
    ):
        with pytest.raises(ModelError, match=message):
            pruned_weights(model, kept)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ((("encoder.9.self", 1),), 'no attention layer "encoder.9.self"; did you mean "encoder.2.self"'),
        ((("encoder.0.self", 5),), "encoder.0.self: choose 0 to 4 heads"),
        ((("encoder.0.self", 1), ("encoder.0.self", 2)), "list encoder.0.self only once"),
    ],
)
def test_settings_that_do_not_fit(kept: tuple[tuple[str, int], ...], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        dataclasses.replace(SMALL, remaining_heads=kept)  # type: ignore[call-arg]


def test_the_strongest_of_all_attentions() -> None:
    scores = {"a": torch.tensor([0.5, 0.1]), "b": torch.tensor([0.5, 0.9, 0.0])}
    assert strongest(scores, 2) == {"a": (0,), "b": (1,)}  # of equals the earlier one
    assert strongest(scores, 0) == {"a": (), "b": ()}
    assert strongest(scores, 9) == {"a": (0, 1), "b": (0, 1, 2)}


def test_settings_describe_models() -> None:
    settings: ModelSettings = dataclasses.replace(SMALL, remaining_heads=(("decoder.1.self", 0), ("encoder.0.self", 1)))
    names = list(attention_hooks(build(settings)))
    assert "decoder.1.self" not in names
    assert len(names) == 6
