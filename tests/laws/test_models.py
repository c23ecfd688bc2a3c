"""The laws that every architecture keeps, whatever is inside it (DESIGN.md, "Laws")."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as example_budget
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from regard.config import ModelSettings
from regard.layers.hooks import attention_hooks, listen, trace, without_heads
from regard.models.base import Seq2Seq
from tests.toys import (
    CONVOLUTIONS,
    EXPERTS,
    SOURCELESS,
    TOYS,
    VARIANTS,
    Sentences,
    build,
    close,
    map_tree,
    sentences,
    tokens,
    walk,
)

WITH_SOURCE = TOYS | VARIANTS | EXPERTS | CONVOLUTIONS
CASES = WITH_SOURCE | SOURCELESS
ATTENTIVE = {name: case for name, case in WITH_SOURCE.items() if case.attends}

every_model = pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
every_model_with_source = pytest.mark.parametrize("settings", WITH_SOURCE.values(), ids=WITH_SOURCE.keys())
every_attentive_model = pytest.mark.parametrize("settings", ATTENTIVE.values(), ids=ATTENTIVE.keys())
OBSERVED = ATTENTIVE | SOURCELESS
every_observed_model = pytest.mark.parametrize("settings", OBSERVED.values(), ids=OBSERVED.keys())


# ---------------------------------------------------------------------------------------------------------------------
# One answer, however it is asked for


@every_model
@torch.no_grad()
def test_steps_equal_forward(model: Seq2Seq, source: Sentences) -> None:
    target_BT = tokens(3, 6)
    close(walk(model, source, target_BT[:, None])[:, 0], model(source, target_BT))


@every_model
@torch.no_grad()
def test_beams_are_queries_on_one_memory(model: Seq2Seq, source: Sentences) -> None:
    target_BWT = tokens(3, 4, 5)
    together = walk(model, source, target_BWT)
    for beam in range(4):
        close(together[:, beam], walk(model, source, target_BWT[:, beam : beam + 1])[:, 0])


@every_model
@torch.no_grad()
def test_beams_can_be_reordered(model: Seq2Seq, source: Sentences) -> None:
    """After `select`, a hypothesis goes on from the state of the beam that it grew from."""
    order, memory = [2, 0, 0], model.encode(source)
    state = map_tree(lambda x: x.repeat_interleave(3, dim=1), model.start(memory))
    _, state = model.step(tokens(3, 3), state, memory)
    following = tokens(3, 3)
    straight, _ = model.step(following, state, memory)
    reordered, _ = model.step(following[:, order], map_tree(lambda x: x[:, order], state), memory)
    close(reordered, straight[:, order])


@every_model
@torch.no_grad()
def test_finished_sentences_can_leave(model: Seq2Seq, source: Sentences) -> None:
    """A search drops rows of state and memory when their sentences are done."""
    left, memory = [2, 0], model.encode(source)
    _, state = model.step(tokens(3, 1), model.start(memory), memory)
    following = tokens(3, 1)
    whole, _ = model.step(following, state, memory)
    part, _ = model.step(following[left], *(map_tree(lambda x: x[left], tree) for tree in (state, memory)))
    close(part, whole[left])


# ---------------------------------------------------------------------------------------------------------------------
# What cannot matter does not matter


@every_model
@torch.no_grad()
def test_padding_changes_nothing(model: Seq2Seq, source: Sentences) -> None:
    target_BT = tokens(3, 5)
    padded = Sentences(
        torch.cat([source.ids_BS, tokens(3, 3)], dim=1), F.pad(source.mask_BS, (0, 3))
    )  # more padding, and other tokens in it
    padded.ids_BS[~padded.mask_BS] = tokens(int((~padded.mask_BS).sum()))
    logits = model(padded, torch.cat([target_BT, tokens(3, 4)], dim=1))
    close(logits[:, :5], model(source, target_BT))


@every_model
@torch.no_grad()
def test_the_future_never_leaks(model: Seq2Seq, source: Sentences) -> None:
    target_BT = tokens(3, 6)
    logits = model(source, target_BT)
    for place in range(1, 6):
        changed = target_BT.clone()
        changed[:, place] = (changed[:, place] + 1) % model.output.out_features
        other = model(source, changed)
        close(other[:, :place], logits[:, :place], 1e-6)
        assert not torch.equal(other[:, place:], logits[:, place:])


@every_model
@example_budget(max_examples=8)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), seed=st.integers(0, 99))
@torch.no_grad()
def test_a_sentence_alone_equals_its_row_in_any_batch(settings: ModelSettings, lengths: list[int], seed: int) -> None:
    model = build(settings)
    torch.manual_seed(seed)
    source, target_BT = sentences(lengths), tokens(len(lengths), 4)
    together = model(source, target_BT)
    for row, length in enumerate(lengths):
        alone = Sentences(source.ids_BS[row : row + 1, :length], source.mask_BS[row : row + 1, :length])
        close(model(alone, target_BT[row : row + 1])[0], together[row])


@every_model_with_source
@torch.no_grad()
def test_the_source_matters(model: Seq2Seq, source: Sentences) -> None:
    """The other laws would hold for a model that is deaf."""
    target_BT = tokens(3, 3)
    other = source._replace(ids_BS=(source.ids_BS + 1) % model.output.out_features)
    assert (model(other, target_BT) - model(source, target_BT)).abs().amax(dim=(1, 2)).min() > 1e-4


# ---------------------------------------------------------------------------------------------------------------------
# Weights


@every_model
@torch.no_grad()
def test_saving_and_loading_leaves_the_logits_alone(settings: ModelSettings, source: Sentences, tmp_path: Path) -> None:
    model, other, target_BT = build(settings), build(settings, seed=1), tokens(3, 5)
    expected = model(source, target_BT)
    assert not torch.equal(other(source, target_BT), expected)
    save_file({name: weight.detach() for name, weight in model.named_parameters()}, tmp_path / "weights.safetensors")
    stored = load_file(tmp_path / "weights.safetensors")
    for name, weight in other.named_parameters():
        weight.copy_(stored.pop(name))
    assert not stored
    assert torch.equal(other(source, target_BT), expected)


@every_model
def test_every_weight_learns(model: Seq2Seq, source: Sentences) -> None:
    target_BT = tokens(3, 5)
    F.cross_entropy(model.train()(source, target_BT).flatten(0, 1), target_BT.flatten()).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


# ---------------------------------------------------------------------------------------------------------------------
# Looking changes nothing


@every_observed_model
@torch.no_grad()
def test_recording_changes_nothing(model: Seq2Seq, source: Sentences) -> None:
    target_BT = tokens(3, 5)
    unseen = model(source, target_BT)
    with trace(model) as tape:
        close(model(source, target_BT), unseen)
    assert set(tape) == set(attention_hooks(model))
    assert torch.equal(model(source, target_BT), unseen)
    assert all(tap.idle for tap in attention_hooks(model).values())


@every_observed_model
@torch.no_grad()
def test_listening_without_a_wish_changes_nothing(model: Seq2Seq, source: Sentences) -> None:
    target_BT = tokens(3, 5)
    unheard = model(source, target_BT)
    for listener in (lambda name, weights: weights, lambda name, weights: None, without_heads()):
        with listen(model, "*", listener):
            close(model(source, target_BT), unheard)


@every_attentive_model
@torch.no_grad()
def test_weights_are_shares_of_what_is_real(model: Seq2Seq, source: Sentences) -> None:
    with trace(model, "decoder*cross") as tape:
        model(source, tokens(3, 5))
    for name in tape:
        weights_BHTS = tape.steps(name)
        assert weights_BHTS.shape[2:] == (5, 7)
        close(weights_BHTS.sum(-1), torch.ones(weights_BHTS.shape[:-1]))
        assert not weights_BHTS.masked_select(~source.mask_BS[:, None, None, :]).any()


@every_attentive_model
@torch.no_grad()
def test_steps_look_where_forward_looks(model: Seq2Seq, source: Sentences) -> None:
    target_BT = tokens(3, 5)
    with trace(model, "decoder*cross") as at_once:
        model(source, target_BT)
    with trace(model, "decoder*cross") as stepwise:
        walk(model, source, target_BT[:, None])
    for name in at_once:
        close(stepwise.steps(name), at_once.steps(name))


@every_attentive_model
@torch.no_grad()
def test_switching_attention_off_is_felt(model: Seq2Seq, source: Sentences) -> None:
    target_BT = tokens(3, 5)
    with listen(model, "decoder*cross", lambda name, weights: torch.zeros_like(weights)):
        blind = model(source, target_BT)
    assert (blind - model(source, target_BT)).abs().max() > 1e-3
