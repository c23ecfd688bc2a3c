"""ALTI: the parts add up to what the model computes, and shares are what the papers' formulas give."""

import dataclasses

import pytest
import torch
from torch import Tensor

from regard.analysis.attribution import TokenPair, attribute
from regard.analysis.attribution_methods import alti, attention_parts, cross_shares, self_shares, shares
from regard.layers.hooks import trace, trace_states
from regard.models.transformer import Transformer
from tests.toys import TOYS, VARIANTS, build, close, sentences, tokens

POST, PRE = TOYS["transformer-small"], TOYS["transformer-tiny"]


def make_pair() -> TokenPair:
    target = tokens(1, 6)
    return TokenPair(sentences([6]), target[:, :-1], target[:, 1:])


def built(settings) -> Transformer:
    model = build(settings)
    assert isinstance(model, Transformer)
    return model


def test_shares_by_hand() -> None:
    """Ferrando et al. 2022a, eq. 8 and 9, in two dimensions: y = (3, 1), the L1 norm of which is 4."""
    whole_TD = torch.tensor([[3.0, 1.0]])
    parts_TPD = torch.tensor([[[2.0, 0.0], [1.0, 1.0], [-1.0, 0.0]]])
    # Distances from y: 2, 2, 5; nearer than nothing by 2, 2 and not at all.
    close(shares(parts_TPD, whole_TD), torch.tensor([[0.5, 0.5, 0.0]]))
    close(shares(-whole_TD[:, None], whole_TD), torch.tensor([[0.0]]))


@pytest.mark.parametrize("settings", [POST, PRE], ids=["norm after", "norm before"])
def test_parts_add_up_to_the_block(settings) -> None:
    """The vectors of all inputs and the biases make up what the attention block gives, norm included."""
    model, pair = built(settings), make_pair()
    with torch.no_grad(), trace(model) as tape, trace_states(model) as states:
        model(pair.source, pair.input_1T)
        block, x_SD = model.encoder.blocks[1], states["encoder.0"][0]
        apart = attention_parts(tape, block.self_attention, x_SD, len(x_SD))
        close(apart.contribution_TSD.sum(1) + block.self_attention.out.bias, apart.update_TD)
        close(apart.update_TD, block.self_attention(block.self_attention_residual.enter(x_SD[None]))[0])
        stream_SD = self_shares(apart, block.self_attention_residual)[1]
        fed_SD = block.feed_forward_residual.leave(
            stream_SD, block.feed_forward(block.feed_forward_residual.enter(stream_SD))
        )
        close(fed_SD, states["encoder.1"][0])


@pytest.mark.parametrize("settings", [POST, PRE], ids=["norm after", "norm before"])
def test_the_stream_inside_a_decoder_block(settings) -> None:
    """Self-attention, cross-attention and feed-forward in turn arrive at what the model has at the top of the layer."""
    model, pair = built(settings), make_pair()
    with torch.no_grad(), trace(model) as tape, trace_states(model) as states:
        model(pair.source, pair.input_1T)
        block, x_TD = model.decoder[0], states["decoder.embed"][0]
        own_TT, own_TD = self_shares(
            attention_parts(tape, block.self_attention, x_TD, 5), block.self_attention_residual
        )
        cross_TS, cross_TD = cross_shares(
            attention_parts(tape, block.cross_attention, own_TD, 6), block.cross_attention_residual
        )
        fed_TD = block.feed_forward_residual.leave(
            cross_TD, block.feed_forward(block.feed_forward_residual.enter(cross_TD))
        )
        close(fed_TD, states["decoder.0"][0])
        assert own_TT.shape == (5, 5)
        assert cross_TS.shape == (5, 6)
        assert (cross_TS.sum(-1) < 1).all()


def naive_self_shares(model: Transformer, layer: int, x_SD: Tensor, weights_HSS: Tensor) -> Tensor:
    """The papers' formulas with loops and whole matrices, norm after the sum: an independent second writing."""
    block = model.encoder.blocks[layer]
    attend, norm = block.self_attention, block.self_attention_residual.norm
    heads, length, width = len(weights_HSS), len(x_SD), x_SD.shape[1]
    head_width = attend.out.weight.shape[1] // heads
    value_map, value_bias = attend.qkv.weight[2 * heads * head_width :], attend.qkv.bias[2 * heads * head_width :]
    centre = torch.eye(width) - 1 / width
    found = torch.zeros(length, length)
    for i in range(length):
        parts = []
        for j in range(length):
            vector = x_SD[i].clone() if i == j else torch.zeros(width)
            for h in range(heads):
                rows = slice(h * head_width, (h + 1) * head_width)
                value = value_map[rows] @ x_SD[j] + value_bias[rows]
                vector = vector + weights_HSS[h, i, j] * attend.out.weight[:, rows] @ value
            parts.append(vector)
        summed = sum(parts) + attend.out.bias
        spread = (centre @ summed).pow(2).mean().add(norm.eps).sqrt()
        turned = [norm.weight * (centre @ part) / spread for part in parts]
        whole = norm(summed)
        nearer = torch.stack([whole.abs().sum() - (whole - part).abs().sum() for part in turned]).clamp_min(0)
        found[i] = nearer / nearer.sum()
    return found


def test_equals_the_formulas_written_with_loops() -> None:
    model, pair = built(POST), make_pair()
    with torch.no_grad(), trace(model) as tape, trace_states(model) as states:
        model(pair.source, pair.input_1T)
        block, x_SD = model.encoder.blocks[0], states["encoder.embed"][0]
        expected = naive_self_shares(model, 0, x_SD, tape["encoder.0.self"].weights_BHTS[0])
        found, _ = self_shares(
            attention_parts(tape, block.self_attention, x_SD, len(x_SD)), block.self_attention_residual
        )
    close(found, expected)


@pytest.mark.parametrize("settings", [POST, PRE], ids=["norm after", "norm before"])
def test_where_values_are_zero_all_is_ones_own(settings) -> None:
    """Without anything to bring, attention mixes nothing, however evenly it looks around. Raw weights do not see it."""
    model, pair = built(settings), make_pair()
    with torch.no_grad():
        for block in (*model.encoder.blocks, *model.decoder):
            for attend in (
                block.self_attention,
                *([block.cross_attention] if hasattr(block, "cross_attention") else []),
            ):
                attend.out.weight.zero_()
                attend.out.bias.zero_()
    found = attribute(model, *pair, "alti")
    close(found.target_TT, torch.eye(5))
    close(found.source_TS, torch.zeros(5, 6))
    assert attribute(model, *pair, "attention").source_TS.max() > 0.1


def test_a_planted_copy_is_found() -> None:
    """A cross-attention made to drown the stream in one source token: ALTI gives that token nearly everything."""
    model, pair = built(dataclasses.replace(PRE, encoder_layers=1, decoder_layers=1)), make_pair()
    with torch.no_grad():
        model.encoder.blocks[0].self_attention.out.weight.zero_()
        model.decoder[0].cross_attention.out.weight.mul_(1e4)
    with torch.no_grad(), trace(model) as tape:
        model(pair.source, pair.input_1T)
    found = attribute(model, *pair, "alti")
    close(found.source_TS.sum(-1), torch.ones(5), 1e-2)
    strongest = found.source_TS.argmax(-1)
    heads_HTS = tape["decoder.0.cross"].weights_BHTS[0]
    assert all(heads_HTS[:, t, place].max() > 1 / 6 for t, place in enumerate(strongest.tolist()))


@pytest.mark.parametrize("arch", ["transformer-small", "transformer-tiny"])
def test_layers_without_heads_mix_nothing(arch: str) -> None:
    """Pruned to the last head, an attention adds a constant: rows still sum to one, and rollout agrees."""
    kept = (("encoder.0.self", 0), ("decoder.0.self", 0), ("decoder.1.cross", 0), ("decoder.1.self", 1))
    model, pair = built(dataclasses.replace(TOYS[arch], remaining_heads=kept)), make_pair()
    for method in ("alti", "rollout", "attention"):
        found = attribute(model, *pair, method)
        assert found.source_TS.isfinite().all()
        if method != "attention":
            close(found.source_TS.sum(-1) + found.target_TT.sum(-1), torch.ones(5))


def test_positions_of_every_kind() -> None:
    for settings in VARIANTS.values():
        found = alti(build(settings), make_pair())
        close(found.source_TS.sum(-1) + found.target_TT.sum(-1), torch.ones(5))
