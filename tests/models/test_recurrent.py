"""The recurrent models' options, each against what it says it does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard import models
from regard.errors import ModelError, SettingsError
from regard.layers.hooks import attention_hooks, listen, trace
from regard.layers.rnn_cells import LSTM, RecurrentCell, unroll
from regard.models.recurrent import BahdanauDecoder, LuongDecoder, Recurrent
from tests.toys import VOCABULARY, Sentences, build, check_gradients, close, map_tree, sentences, tokens, toy, walk

CROSS = "decoder.cross"

each_decoder = pytest.mark.parametrize("arch", ["seq2seq-lstm", "bahdanau", "luong-general", "gnmt"])
each_attention = pytest.mark.parametrize("arch", ["bahdanau", "luong-dot", "luong-general", "luong-concat", "gnmt"])


def small(arch: str, **changes: Any) -> Recurrent:
    model = build(toy(arch, **changes))
    assert isinstance(model, Recurrent)
    return model


def fresh(arch: str, **changes: Any) -> Recurrent:
    """As training starts from it: no noise on the weights."""
    model = models.build(toy(arch, **changes), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    assert isinstance(model, Recurrent)
    return model


def gap(actual: Tensor, expected: Tensor) -> float:
    return (actual - expected).abs().max().item()


# ---------------------------------------------------------------------------------------------------------------------
# How models start


@each_decoder
def test_cells_start_with_orthogonal_memory_and_open_forget_gates(arch: str) -> None:
    for cell in (module for module in fresh(arch).modules() if isinstance(module, RecurrentCell)):
        for gate in cell.recurrent.weight.chunk(cell.gates):
            close(gate @ gate.t(), torch.eye(16))
        write, forget, *others = cell.input.bias.chunk(cell.gates)
        assert (forget == (1 if isinstance(cell, LSTM) else 0)).all()
        assert not torch.cat([write, *others]).any()


def test_embeddings_are_read_with_unit_variance() -> None:
    model = models.build(toy("luong-dot", embedding_width=64), source_vocabulary=500, target_vocabulary=500)
    assert isinstance(model, Recurrent)
    for embed in (model.encoder.embed, model.embed):
        assert embed(torch.arange(500)).std().item() == pytest.approx(1.0, abs=0.05)


@each_decoder
@torch.no_grad()
def test_dropout_is_on_what_layers_and_output_read_and_not_on_what_is_carried(arch: str) -> None:
    model, source, target_BT = small(arch, dropout=0.25).train(), sentences([9] * 8), tokens(8, 9)
    cells = {name: cell for name, cell in model.named_modules() if isinstance(cell, RecurrentCell)}
    read: dict[str, list[Tensor]] = {name: [] for name in [*cells, "output"]}
    for name, cell in cells.items():
        keep = read[name]  # of [state below; context], the state below
        cell.input.register_forward_pre_hook(lambda module, x, keep=keep: keep.append(x[0][..., :16]))
    model.output.register_forward_pre_hook(lambda module, x: read["output"].append(x[0]))
    model(source, target_BT)
    for name, parts in read.items():
        share = torch.cat([part.flatten() for part in parts]).eq(0).float().mean().item()
        assert share == pytest.approx(0.25, abs=0.06), name
    assert all(part.all() for layer in model.encode(source).extra.first for part in layer)


# ---------------------------------------------------------------------------------------------------------------------
# The encoder


def turned(source: Sentences) -> tuple[Sentences, Tensor]:
    """Each sentence from its end to its start, padding where it was; and the place that every token came from."""
    place_S = torch.arange(source.ids_BS.shape[1])
    origin_BS = torch.where(source.mask_BS, source.mask_BS.sum(1, keepdim=True) - 1 - place_S, place_S)
    return source._replace(ids_BS=source.ids_BS.gather(1, origin_BS)), origin_BS


@each_decoder
@torch.no_grad()
def test_a_reversed_source_is_read_from_its_last_real_token(arch: str) -> None:
    """As a model that reads forwards would read the turned sentences; yet states stay at the places of their tokens."""
    source, target_BT = sentences([6, 3, 1]), tokens(3, 4)
    upside_down, origin_BS = turned(source)
    backward, forward = small(arch, reverse_source=True), small(arch, reverse_source=False)
    close(backward(source, target_BT), forward(upside_down, target_BT))

    memory, other = backward.encode(source), forward.encode(upside_down)
    assert torch.equal(memory.mask_BS, source.mask_BS)
    there_BSD = other.states_BSD.gather(1, origin_BS[..., None].expand_as(other.states_BSD))
    close(memory.states_BSD[source.mask_BS], there_BSD[source.mask_BS])


@torch.no_grad()
def test_a_reversed_source_ends_at_its_first_token() -> None:
    memory = small("seq2seq-lstm", reverse_source=True).encode(sentences([6, 3]))
    close(memory.extra.first[-1][0], memory.states_BSD[:, 0], 0)


@pytest.mark.parametrize("backward", [False, True])
@torch.no_grad()
def test_a_state_stands_still_wherever_there_is_padding(backward: bool) -> None:
    cell, x_SBD = LSTM(3, 4), torch.randn(6, 1, 3)
    mask_SB = torch.tensor([[0], [1], [1], [0], [1], [0]], dtype=torch.bool)
    states, last = unroll(cell, cell.input(x_SBD), cell.start(1), mask_SB, backward=backward)
    real_states, real_last = unroll(cell, cell.input(x_SBD[mask_SB[:, 0]]), cell.start(1), backward=backward)
    close(states[mask_SB[:, 0]], real_states, 1e-6)
    close(torch.stack(last), torch.stack(real_last), 1e-6)
    close(states[3], states[4 if backward else 2], 0)
    assert not states[5 if backward else 0].any()


@pytest.mark.parametrize(
    ("bidirectional", "cells", "width"), [("none", [1, 1, 1], 16), ("all", [2, 2, 2], 32), ("first", [2, 1, 1], 16)]
)
@torch.no_grad()
def test_directions(bidirectional: str, cells: list[int], width: int) -> None:
    """How many cells a layer has, how wide the states are, and whether the first token knows of the last."""
    model, source = small("luong-general", bidirectional=bidirectional, encoder_layers=3), sentences([6])
    assert [len(layer.cells) for layer in model.encoder.layers] == cells
    states_BSD = model.encode(source).states_BSD
    assert states_BSD.shape == (1, 6, width)
    source.ids_BS[0, -1] = (source.ids_BS[0, -1] + 1) % VOCABULARY
    felt = gap(model.encode(source).states_BSD[:, 0], states_BSD[:, 0])
    assert felt == 0 if bidirectional == "none" else felt > 1e-6


# ---------------------------------------------------------------------------------------------------------------------
# Residuals


@torch.no_grad()
def silence(model: Recurrent, lowest: int) -> None:
    """From this layer on, counted from 1, every cell stays at zero."""
    decoder = [cell for cell in model.decoder.modules() if isinstance(cell, RecurrentCell)]
    for layer in [*model.encoder.layers[lowest - 1 :], *decoder[lowest - 1 :]]:
        for parameter in layer.parameters():
            parameter.zero_()


@pytest.mark.parametrize("residual_from", [2, 3, 4])
@pytest.mark.parametrize("arch", ["seq2seq-lstm", "bahdanau", "luong-general"])
@torch.no_grad()
def test_residuals_start_at_their_layer(arch: str, residual_from: int) -> None:
    """Where silent layers add their input, a tall model is the short one below them, which itself adds nothing."""
    sizes = {"bidirectional": "none", "embedding_width": 16}
    tall = small(arch, encoder_layers=4, decoder_layers=4, residual_from_layer=residual_from, **sizes)
    short = small(
        arch, encoder_layers=residual_from - 1, decoder_layers=residual_from - 1, residual_from_layer=0, **sizes
    )
    weights = tall.state_dict()
    short.load_state_dict({name: weights[name] for name in short.state_dict()})
    silence(tall, residual_from)
    source, target_BT = sentences([5, 3]), tokens(2, 4)
    close(tall(source, target_BT), short(source, target_BT))


TOP_READERS = {"seq2seq-lstm": "output", "bahdanau": "decoder.maxout", "luong-general": "decoder.attention.score.map"}


@pytest.mark.parametrize(("arch", "reader"), TOP_READERS.items())
@torch.no_grad()
def test_residuals_may_start_at_the_embedding(arch: str, reader: str) -> None:
    """Where every layer is silent and adds its input, whoever reads the top layer finds the embedding there."""
    model, source = small(arch, residual_from_layer=1, embedding_width=16, bidirectional="none"), sentences([5, 3])
    silence(model, 1)
    memory, token_B1, read = model.encode(source), tokens(2, 1), []
    close(memory.states_BSD, model.encoder.embed(source.ids_BS), 0)
    model.get_submodule(reader).register_forward_pre_hook(lambda module, x: read.append(x[0].reshape(2, -1)))
    model.step(token_B1, model.start(memory), memory)
    close(read[0][:, :16], model.embed(token_B1)[:, 0], 0)


@pytest.mark.parametrize(
    ("arch", "residual_from", "problem"),
    [
        ("luong-dot", 1, "layer 1 has input width 12 and output width 16"),
        ("gnmt", 2, "layer 2 has input width 32 and output width 16"),
    ],
)
def test_residuals_need_one_width(arch: str, residual_from: int, problem: str) -> None:
    with pytest.raises(
        SettingsError,
        match=rf"model\.residual_from_layer = {residual_from}: {problem}, which must be equal; set a higher",
    ):
        small(arch, residual_from_layer=residual_from)


# ---------------------------------------------------------------------------------------------------------------------
# From encoder to decoder

HEIGHTS = {(2, 2): [0, 1], (4, 2): [2, 3], (2, 4): [0, 0, 0, 1], (1, 3): [0, 0, 0]}
"""Layers of both stacks, and the encoder layer that each decoder layer starts from."""


@pytest.mark.parametrize(("heights", "origins"), HEIGHTS.items())
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_stacks_are_aligned_at_the_top(heights: tuple[int, int], origins: list[int], cell: str) -> None:
    """Of one width, a decoder layer starts from the very state in which its encoder layer ended."""
    model = small("luong-dot", cell=cell, encoder_layers=heights[0], decoder_layers=heights[1])
    source = sentences([5, 3])
    _, lasts = model.encoder(source)
    start = model.start(model.encode(source))
    assert len(start.layers) == heights[1]
    for layer, origin in zip(start.layers, origins, strict=True):
        assert len(layer) == (2 if cell == "lstm" else 1)
        for part, last in zip(layer, lasts[origin], strict=True):
            close(part[:, 0], last, 0)


@pytest.mark.parametrize(("bidirectional", "bridged"), [("all", [True, True, True]), ("first", [True, True, False])])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_bridges_lead_over_from_another_width(bidirectional: str, bridged: list[bool], cell: str) -> None:
    """tanh(W h + b) for each part of the state where the encoder layer is twice as wide, and nothing elsewhere."""
    model = small("luong-general", cell=cell, bidirectional=bidirectional, encoder_layers=2, decoder_layers=3)
    assert [len(bridge.maps) > 0 for bridge in model.bridges] == bridged
    source = sentences([5, 3])
    _, lasts = model.encoder(source)
    start = model.start(model.encode(source))
    for bridge, layer, last in zip(model.bridges, start.layers, [lasts[0], lasts[0], lasts[1]], strict=True):
        assert [part.shape for part in layer] == [(2, 1, 16)] * (2 if cell == "lstm" else 1)
        for number, part in enumerate(layer):
            expected = torch.tanh(bridge.maps[number](last[number])) if bridge.maps else last[number]
            close(part[:, 0], expected, 0)


@pytest.mark.parametrize("score", ["dot", "scaled"])
def test_a_dot_product_needs_states_of_one_width(score: str) -> None:
    problem = f'"{score}" needs encoder and decoder states of equal width, but they have 32 and 16; set'
    for attention in ("bahdanau", "luong"):
        with pytest.raises(SettingsError, match=problem):
            small("luong-dot", attention_score=score, attention=attention, bidirectional="all")
        for change in ({"bidirectional": "first"}, {"attention_score": "general"}, {"attention_score": "additive"}):
            small("luong-dot", **{"attention_score": score, "attention": attention, "bidirectional": "all"} | change)


def test_target_and_output_are_one_matrix() -> None:
    model = models.build(
        toy("luong-dot", tie_embeddings="target", embedding_width=16), source_vocabulary=11, target_vocabulary=13
    )
    assert isinstance(model, Recurrent)
    assert model.output.weight is model.embed.tokens.weight
    assert model.output.weight.shape == (13, 16)
    assert model.encoder.embed.tokens.weight.shape == (11, 16)


def test_no_embeddings_are_shared() -> None:
    model = small("luong-dot", tie_embeddings="none", embedding_width=16)
    weights = (model.encoder.embed.tokens.weight, model.embed.tokens.weight, model.output.weight)
    assert len({id(weight) for weight in weights}) == 3


@pytest.mark.parametrize("arch", ["seq2seq-lstm", "bahdanau", "luong-dot", "luong-concat"])
def test_an_empty_sentence_gives_numbers(arch: str) -> None:
    model = small(arch)
    source = Sentences(tokens(2, 3), torch.tensor([[True, True, True], [False, False, False]]))
    logits = model.train()(source, tokens(2, 4))
    logits.square().mean().backward()
    assert logits.isfinite().all()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


# ---------------------------------------------------------------------------------------------------------------------
# Looking


def test_without_attention_there_is_nothing_to_look_at() -> None:
    model = small("seq2seq-lstm")
    assert attention_hooks(model) == {}
    assert model.encode(sentences([5, 3])).extra.keys == ()


@each_attention
@torch.no_grad()
def test_teacher_forcing_is_seen_as_one_pass(arch: str) -> None:
    model, source = small(arch), sentences([6, 3])
    assert list(attention_hooks(model)) == [CROSS]
    with trace(model) as tape:
        model(source, tokens(2, 5))
    (seen,) = tape.calls[CROSS]
    assert seen.weights_BHTS.shape == (2, 1, 5, 6)
    close(seen.weights_BHTS.masked_fill(~source.mask_BS[:, None, None], 0).sum(-1), torch.ones(2, 1, 5))
    assert not seen.weights_BHTS[1, ..., 3:].any()
    memory = model.encode(source)
    close(seen.value_BHSK, memory.states_BSD[:, None], 0)
    close(seen.output_BHTK, seen.weights_BHTS @ seen.value_BHSK, 1e-6)
    assert isinstance(model.decoder, BahdanauDecoder | LuongDecoder)
    scores = model.decoder.attention.score(seen.query_BHTK, seen.key_BHSK)
    scores = scores.masked_fill(~source.mask_BS[:, None, None], -torch.inf)
    close(seen.weights_BHTS, scores.softmax(-1), 1e-6)


def evenly(name: str, weights: Tensor) -> Tensor:
    return torch.full_like(weights, 1 / weights.shape[-1])


@each_attention
@torch.no_grad()
def test_listeners_are_asked_at_every_step(arch: str) -> None:
    model, source, target_BT = small(arch), sentences([6, 3]), tokens(2, 5)
    heard: list[Tensor] = []
    with trace(model) as tape:
        unheard = model(source, target_BT)
    with listen(model, CROSS, lambda name, weights: heard.append(weights)):
        close(model(source, target_BT), unheard)
    assert [weights.shape for weights in heard] == [(2, 1, 1, 6)] * 5
    close(torch.cat(heard, dim=2), tape[CROSS].weights_BHTS, 0)


@each_attention
@torch.no_grad()
def test_replaced_weights_are_used(arch: str) -> None:
    """Even weights show the mean of the states at every step and change the logits; the model's own change nothing."""
    model, source, target_BT = small(arch), sentences([6, 3]), tokens(2, 5)
    own = model(source, target_BT)
    with listen(model, CROSS, lambda name, weights: weights.clone()):
        close(model(source, target_BT), own)
    with listen(model, CROSS, evenly), trace(model) as tape:
        even = model(source, target_BT)
        close(walk(model, source, target_BT[:, None])[:, 0], even)
    assert (even - own).abs().amax(dim=(0, 2)).min() > 1e-4
    mean_BD = model.encode(source).states_BSD.mean(1)
    close(tape.calls[CROSS][0].output_BHTK, mean_BD[:, None, None].expand(2, 1, 5, -1), 1e-6)


@each_attention
@torch.no_grad()
def test_what_a_listener_does_once_is_felt_from_then_on(arch: str) -> None:
    model, source, target_BT = small(arch), sentences([6, 3]), tokens(2, 5)
    own, step = model(source, target_BT), iter(range(5))
    with listen(model, CROSS, lambda name, weights: evenly(name, weights) if next(step) == 2 else None):
        moved = (model(source, target_BT) - own).abs().amax(dim=(0, 2))
    assert moved[:2].max() < 1e-5
    assert moved[2:].min() > 1e-5


@torch.no_grad()
def test_replaced_weights_keep_their_shape() -> None:
    model, source, target_BT = small("bahdanau"), sentences([6, 3]), tokens(2, 5)
    own = model(source, target_BT)
    cut = listen(model, CROSS, lambda name, weights: weights[..., 1:])
    with pytest.raises(ModelError, match=r"decoder\.cross: .* instead of \(2, 1, 1, 6\)"), trace(model) as tape, cut:
        model(source, target_BT)
    assert not tape
    assert torch.equal(model(source, target_BT), own)


# ---------------------------------------------------------------------------------------------------------------------
# Searching


@each_attention
@torch.no_grad()
def test_beams_are_queries_on_one_memory(arch: str) -> None:
    """W hypotheses a sentence look at keys and values that lie where `encode` left them."""
    model, source = small(arch), sentences([6, 3])
    memory = model.encode(source)
    assert memory.states_BSD.shape[:2] == (2, 6)
    assert [key.shape for key in memory.extra.keys] == [(2, 6, 16)] * ("concat" in arch or arch in ("bahdanau", "gnmt"))
    state = map_tree(lambda x: x.repeat_interleave(4, dim=1), model.start(memory))
    with trace(model) as tape:
        logits_BWV, after = model.step(tokens(2, 4), state, memory)
    assert logits_BWV.shape == (2, 4, VOCABULARY)
    assert map_tree(lambda x: x.shape[:2], after) == map_tree(lambda x: (2, 4), state)
    seen = tape[CROSS]
    assert seen.query_BHTK.shape[:3] == (2, 1, 4)
    assert seen.weights_BHTS.shape == (2, 1, 4, 6)
    assert seen.value_BHSK.data_ptr() == memory.states_BSD.data_ptr()
    assert seen.key_BHSK.data_ptr() == (*memory.extra.keys, memory.states_BSD)[0].data_ptr()


# ---------------------------------------------------------------------------------------------------------------------
# Luong


@torch.no_grad()
def test_input_feeding_starts_at_zero_and_matters() -> None:
    model, token_B1 = small("luong-general"), tokens(2, 1)
    memory = model.encode(sentences([6, 3]))
    state = model.start(memory)
    (fed,) = state.fed
    assert fed.shape == (2, 1, 16)
    assert not fed.any()
    logits, after = model.step(token_B1, state, memory)
    close(model.output(after.fed[0]), logits, 1e-6)  # what is fed back is what has just been said
    moved, _ = model.step(token_B1, after._replace(fed=(fed,)), memory)
    assert gap(moved, model.step(token_B1, after, memory)[0]) > 1e-3


def test_only_luong_feeds_back() -> None:
    for arch in ("seq2seq-lstm", "bahdanau", "gnmt"):
        model = small(arch)
        assert model.start(model.encode(sentences([5, 3]))).fed == ()


# ---------------------------------------------------------------------------------------------------------------------
# Bahdanau and GNMT


def context_readers(decoder: BahdanauDecoder) -> list[Tensor]:
    """The columns that read the context: in the bottom cell, in each layer above it, and before the output."""
    assert decoder.bottom.input_feeding is not None
    width = decoder.bottom.input_feeding.in_features
    above = [cell.input.weight[:, -width:] for cell in decoder.upper.cells]
    return [decoder.bottom.input_feeding.weight, *above, decoder.maxout.weight[:, -width:]]


@pytest.mark.parametrize("reader", range(5), ids=["bottom", "layer 2", "layer 3", "layer 4", "output"])
@torch.no_grad()
def test_the_context_reaches_every_layer(reader: int) -> None:
    """With all others deaf to it, each reader alone makes attention felt; with all of them deaf, nobody feels it."""
    model, source, target_BT = small("gnmt"), sentences([6, 3]), tokens(2, 4)
    assert isinstance(model.decoder, BahdanauDecoder)
    readers = context_readers(model.decoder)
    assert len(readers) == 5
    for number, weight in enumerate(readers):
        if number != reader:
            weight.zero_()
    own = model(source, target_BT)
    with listen(model, CROSS, evenly):
        assert gap(model(source, target_BT), own) > 1e-4
    readers[reader].zero_()
    own = model(source, target_BT)
    with listen(model, CROSS, evenly):
        close(model(source, target_BT), own, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Gradients


@pytest.mark.parametrize("attention", ["bahdanau", "luong"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_are_those_of_finite_differences(attention: str, cell: str) -> None:
    """For every weight of a model with the perceptron's score, and padding, in double precision."""
    sizes = {"width": 4, "embedding_width": 4, "encoder_layers": 1, "decoder_layers": 2, "bidirectional": "all"}
    check_gradients(build(toy("bahdanau", attention=attention, cell=cell, **sizes)))
