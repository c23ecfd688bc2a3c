"""Our cells, layers, encoders and decoders against PyTorch's recurrent modules, with copied weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.rnn_cells import CELLS, GRU, LSTM, CellState, RecurrentCell, RecurrentLayer, unroll
from regard.models.base import EncoderOutput
from regard.models.recurrent import BahdanauDecoder, LuongDecoder, NoAttentionDecoder, Recurrent
from tests.toys import build, close, sentences, tokens, toy

INPUTS, WIDTH = 5, 8
LENGTHS = {"no padding": [6, 6, 6], "padding": [3, 6, 1]}  # not sorted: `pack_padded_sequence` has to

every_cell = pytest.mark.parametrize("kind", CELLS)
padded_or_not = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())


# ---------------------------------------------------------------------------------------------------------------------
# Copying


def pairs(layers: Iterable[Iterable[RecurrentCell]], theirs: nn.RNNBase) -> Iterator[tuple[Tensor, Tensor, slice]]:
    """Our parameters, theirs, and which rows of theirs. They add two biases where we have one; a GRU needs both, once.

    `layers` holds the cells of each layer, the backward one last.
    """
    for number, cells in enumerate(layers):
        for cell, suffix in zip(cells, ("", "_reverse"), strict=False):
            of = f"_l{number}{suffix}"
            yield cell.input.weight, getattr(theirs, "weight_ih" + of), slice(None)
            yield cell.input.bias, getattr(theirs, "bias_ih" + of), slice(None)
            yield cell.recurrent.weight, getattr(theirs, "weight_hh" + of), slice(None)
            if isinstance(cell, GRU):
                yield cell.candidate_bias, getattr(theirs, "bias_hh" + of), slice(2 * cell.width, None)


@torch.no_grad()
def twin(layers: list[list[RecurrentCell]]) -> nn.RNNBase:
    """PyTorch's stack with our weights."""
    bottom = layers[0][0]
    kind = nn.LSTM if isinstance(bottom, LSTM) else nn.GRU
    sizes = (bottom.input.in_features, bottom.width, len(layers))
    theirs = kind(*sizes, bidirectional=len(layers[0]) == 2)
    for name, parameter in theirs.named_parameters():
        if "bias_hh" in name:
            parameter.zero_()
    for ours, parameter, rows in pairs(layers, theirs):
        parameter[rows] = ours
    return theirs


@torch.no_grad()
def cell_twin(cell: RecurrentCell) -> nn.RNNCellBase:
    """PyTorch's cell with our weights. It reads [what comes from below; what is fed] in one piece."""
    parts = [cell.input.weight] if cell.input_feeding is None else [cell.input.weight, cell.input_feeding.weight]
    inward = torch.cat(parts, dim=1)
    theirs = (nn.LSTMCell if isinstance(cell, LSTM) else nn.GRUCell)(inward.shape[1], cell.width)
    theirs.weight_ih.copy_(inward)
    theirs.weight_hh.copy_(cell.recurrent.weight)
    theirs.bias_ih.copy_(cell.input.bias)
    theirs.bias_hh.zero_()
    if isinstance(cell, GRU):
        theirs.bias_hh[2 * cell.width :] = cell.candidate_bias
    return theirs


@torch.no_grad()
def noisy(module: nn.Module) -> Any:
    """No bias stays zero, no forget gate at one."""
    for parameter in module.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    return module


def recurrent(arch: str, **changes: Any) -> Recurrent:
    model = build(toy(arch, **changes))
    assert isinstance(model, Recurrent)
    return model


# ---------------------------------------------------------------------------------------------------------------------
# Running theirs, and the papers' attention in plain words


def run(theirs: nn.RNNBase, x_SBD: Tensor, lengths: list[int]) -> tuple[Tensor, list[CellState]]:
    """States [S, B, D] and the last state of each layer, both directions side by side, as `Layer` gives them."""
    packed = pack_padded_sequence(x_SBD, torch.tensor(lengths), enforce_sorted=False)
    states, last = theirs(packed)
    parts = last if isinstance(last, tuple) else (last,)
    directions = 2 if theirs.bidirectional else 1
    layers = [part.unflatten(0, (-1, directions)).transpose(1, 2).flatten(2) for part in parts]
    lasts = [tuple(part[number] for part in layers) for number in range(theirs.num_layers)]
    return pad_packed_sequence(states, total_length=len(x_SBD))[0], lasts


def same_states(ours_SBD: Tensor, theirs_SBD: Tensor, mask_SB: Tensor) -> None:
    """Where tokens are real; theirs puts zeros on padding."""
    close(ours_SBD * mask_SB[..., None], theirs_SBD, 1e-6)


def same_last(ours: CellState, theirs: CellState) -> None:
    for our_part, their_part in zip(ours, theirs, strict=True):
        close(our_part, their_part, 1e-6)


def advance(theirs: nn.RNNCellBase, x: Tensor, state: CellState) -> CellState:
    """One step of PyTorch's cell."""
    return theirs(x, state) if isinstance(theirs, nn.LSTMCell) else (theirs(x, state[0]),)


def embed(table: nn.Embedding, ids: Tensor) -> Tensor:
    """Rows of the table, times the root of their width."""
    return table.weight[ids] * math.sqrt(table.embedding_dim)


def glimpse(kind: str, score: Any, query_BD: Tensor, memory: EncoderOutput) -> Tensor:
    """What one query a sentence sees of its source, with the score written out as in the papers."""
    states_BSD = memory.states_BSD
    if kind == "additive":
        mixed = query_BD[:, None] @ score.query.weight.t() + states_BSD @ score.key.weight.t() + score.key.bias
        scores_BS = torch.tanh(mixed) @ score.score.weight[0]
    else:
        mapped = query_BD @ score.map.weight.t() if kind == "general" else query_BD
        scores_BS = torch.einsum("bd,bsd->bs", mapped, states_BSD) / (4 if kind == "scaled" else 1)  # sqrt(16)
    weights_BS = scores_BS.masked_fill(~memory.mask_BS, -math.inf).softmax(1)
    return torch.einsum("bs,bsd->bd", weights_BS, states_BSD)


# ---------------------------------------------------------------------------------------------------------------------
# One layer


@every_cell
@padded_or_not
@pytest.mark.parametrize("backward", [(False,), (False, True)], ids=["one direction", "both"])
def test_layer(kind: str, lengths: list[int], backward: tuple[bool, ...]) -> None:
    """States, last states, and the gradients of both for every weight and for what is read."""
    layer = noisy(RecurrentLayer(kind, INPUTS, WIDTH, backward))
    theirs = twin([list(layer.cells)])
    x_SBD = torch.randn(6, 3, INPUTS, requires_grad=True)
    copied_SBD = x_SBD.detach().clone().requires_grad_()
    mask_SB = sentences(lengths).mask_BS.t()

    states, last = layer(x_SBD, mask_SB)
    their_states, (their_last,) = run(theirs, copied_SBD, lengths)
    same_states(states, their_states, mask_SB)
    same_last(last, their_last)

    probes = [torch.randn_like(part) for part in (states, *last)]
    for got in ((states * mask_SB[..., None], *last), (their_states, *their_last)):
        sum((part * probe).sum() for part, probe in zip(got, probes, strict=True)).backward()
    assert x_SBD.grad is not None
    close(x_SBD.grad, copied_SBD.grad, 1e-5)
    for parameter, their_parameter, rows in pairs([list(layer.cells)], theirs):
        close(parameter.grad, their_parameter.grad[rows], 1e-5)


@every_cell
@torch.no_grad()
def test_without_a_mask_all_is_real(kind: str) -> None:
    layer, x_SBD = noisy(RecurrentLayer(kind, INPUTS, WIDTH, (False, True))), torch.randn(6, 3, INPUTS)
    states, last = layer(x_SBD, None)
    their_states, (their_last,) = run(twin([list(layer.cells)]), x_SBD, [6, 6, 6])
    close(states, their_states, 1e-6)
    same_last(last, their_last)


@every_cell
@torch.no_grad()
def test_a_sequence_goes_on_from_any_state(kind: str) -> None:
    cell, x_SBD = noisy(CELLS[kind](INPUTS, WIDTH)), torch.randn(6, 3, INPUTS)
    start = tuple(torch.randn(3, WIDTH) for _ in range(cell.carried))
    states, last = unroll(cell, cell.input(x_SBD), start)
    first = tuple(part[None] for part in start)
    their_states, their_last = twin([[cell]])(x_SBD, first if kind == "lstm" else first[0])
    close(states, their_states, 1e-6)
    same_last(tuple(part[None] for part in last), their_last if kind == "lstm" else (their_last,))


@every_cell
@torch.no_grad()
def test_what_is_fed_is_read_beside_the_input(kind: str) -> None:
    cell = noisy(CELLS[kind](INPUTS, WIDTH, fed=3))
    x, fed, state = torch.randn(4, INPUTS), torch.randn(4, 3), tuple(torch.randn(4, WIDTH) for _ in range(cell.carried))
    same_last(cell(cell.feed_in(cell.input(x), fed), state), advance(cell_twin(cell), torch.cat([x, fed], 1), state))


# ---------------------------------------------------------------------------------------------------------------------
# Encoders and decoders


@every_cell
@padded_or_not
@pytest.mark.parametrize("bidirectional", ["none", "all"])
@torch.no_grad()
def test_encoder(kind: str, lengths: list[int], bidirectional: str) -> None:
    """Three layers; each one's last state is what PyTorch's stack gives for it."""
    model = recurrent("luong-general", cell=kind, encoder_layers=3, bidirectional=bidirectional)
    source = sentences(lengths)
    states_BSD, lasts = model.encoder(source)
    theirs = twin([list(layer.cells) for layer in model.encoder.layers])
    their_states, their_lasts = run(theirs, model.encoder.embed(source.ids_BS.t()), lengths)
    same_states(states_BSD.transpose(0, 1), their_states, source.mask_BS.t())
    for last, their_last in zip(lasts, their_lasts, strict=True):
        same_last(last, their_last)


@every_cell
@torch.no_grad()
def test_without_attention_a_model_is_two_stacks(kind: str) -> None:
    """Sutskever et al.: the last states of one start the other."""
    model = recurrent("seq2seq-lstm", cell=kind, reverse_source=False)
    source, target_BT = sentences([6, 6]), tokens(2, 5)
    assert isinstance(model.decoder, NoAttentionDecoder)
    encoder = twin([list(layer.cells) for layer in model.encoder.layers])
    decoder = twin([[cell] for cell in model.decoder.stack.cells])
    _, last = encoder(embed(model.encoder.embed.tokens, source.ids_BS.t()))
    top_TBD, _ = decoder(embed(model.embed.tokens, target_BT.t()), last)
    close(model(source, target_BT), F.linear(top_TBD.transpose(0, 1), model.output.weight), 1e-6)


@pytest.mark.parametrize("score", ["dot", "scaled", "general", "additive"])
@every_cell
@torch.no_grad()
def test_luong(kind: str, score: str) -> None:
    """With h_t = RNN([y; h~]): a = softmax(score(h_t, s)), h~ = tanh(W_c [c; h_t]), p = W_s h~ (Luong et al., 3)."""
    model, source, target_BT = recurrent("luong-dot", cell=kind, attention_score=score), sentences([6, 3]), tokens(2, 5)
    decoder, memory = model.decoder, model.encode(source)
    assert isinstance(decoder, LuongDecoder)
    bottom, above = cell_twin(decoder.bottom), [cell_twin(cell) for cell in decoder.upper]
    fed, states, logits = torch.zeros(2, 16), list(memory.extra.first), []
    for token_B in target_BT.unbind(1):
        states[0] = advance(bottom, torch.cat([embed(model.embed.tokens, token_B), fed], dim=1), states[0])
        for layer, cell in enumerate(above, start=1):
            states[layer] = advance(cell, states[layer - 1][0], states[layer])
        context = glimpse(score, decoder.attention.score, states[-1][0], memory)
        fed = torch.tanh(torch.cat([context, states[-1][0]], dim=1) @ decoder.combine.weight.t())
        logits.append(fed @ model.output.weight.t())
    close(model(source, target_BT), torch.stack(logits, dim=1), 1e-5)


@pytest.mark.parametrize("arch", ["bahdanau", "gnmt"])
@every_cell
@torch.no_grad()
def test_bahdanau(kind: str, arch: str) -> None:
    """With c = look(s_t-1): s_t = RNN([y; c]), p = W maxout(U s_t + V y + C c) (Bahdanau et al., 3.1 and A.2).

    GNMT's upper layers read [x; c], and from the third on add x to what they give (Wu et al., 3 and 3.1).
    """
    model, source, target_BT = recurrent(arch, cell=kind), sentences([6, 3]), tokens(2, 5)
    decoder, memory = model.decoder, model.encode(source)
    assert isinstance(decoder, BahdanauDecoder)
    bottom, above = cell_twin(decoder.bottom), [cell_twin(cell) for cell in decoder.upper.cells]
    states, logits = list(memory.extra.first), []
    for token_B in target_BT.unbind(1):
        y = embed(model.embed.tokens, token_B)
        context = glimpse("additive", decoder.attention.score, states[0][0], memory)
        states[0] = advance(bottom, torch.cat([y, context], dim=1), states[0])
        x = states[0][0]
        for layer, cell in enumerate(above, start=2):
            states[layer - 1] = advance(cell, torch.cat([x, context], dim=1), states[layer - 1])
            x = x + states[layer - 1][0] if layer >= 3 else states[layer - 1][0]
        deep = decoder.maxout(torch.cat([x, y, context], dim=1))
        logits.append(torch.maximum(deep[:, :16], deep[:, 16:]) @ model.output.weight.t())
    close(model(source, target_BT), torch.stack(logits, dim=1), 1e-5)
