"""ConvS2S beside the sentences of its paper (Gehring et al. 2017)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard import models
from regard.errors import ModelError, SettingsError
from regard.layers.hooks import trace
from regard.models import settings_of
from regard.models.base import Seq2Seq, count_parameters
from regard.models.convs2s import ConvLayer, ConvS2S, Shape
from tests.toys import build, check_gradients, close, sentences, step_operations, tokens, toy

HALF = math.sqrt(0.5)


def small(**changes: Any) -> ConvS2S:
    model = build(toy("convs2s", **changes))
    assert isinstance(model, ConvS2S)
    return model


def test_gradients_are_those_of_finite_differences() -> None:
    sizes = {"width": 4, "embedding_width": 3, "encoder_layers": 2, "max_positions": 4}
    check_gradients(small(**sizes))
    check_gradients(small(**sizes, decoder_groups=((1, 4, 3), (1, 6, 1)), tie_embeddings="all"))


@torch.no_grad()
def test_a_decoder_layer_is_equations_1_to_3_of_the_paper() -> None:
    """By hand, for one sentence: the attention's scores d z, values z + e, sum times m sqrt(1/m), residual scaling."""
    model = small(encoder_layers=1, decoder_layers=1, kernel=3)
    source, target_BT, length = sentences([5]), tokens(1, 4), 5
    memory, layer, attention = model.encode(source), model.decoder[0], model.attention[0]
    z_SE = memory.states_BSD[0]
    e_SE = model.encoder.embed.tokens(source.ids_BS[0]) + model.encoder.embed.positions(length)
    g_TE = model.embed.tokens(target_BT[0]) + model.embed.positions(4)
    x_TD = model.enter(g_TE)
    padded = F.pad(x_TD, (0, 0, 2, 0))  # two zeros before the first token, none after the last
    for place in range(4):
        a, b = layer.conv(padded[place : place + 3].flatten()).chunk(2)
        h = a * torch.sigmoid(b)
        d = (attention.query(h) + g_TE[place]) * HALF
        weights_S = torch.softmax(z_SE @ d, dim=0)
        context = weights_S @ ((z_SE + e_SE) * HALF) * (length * math.sqrt(1 / length))
        state = ((h + attention.out(context)) * HALF + x_TD[place]) * HALF
        close(model(source, target_BT)[0, place], model.output(model.leave(state)))


def test_every_decoder_layer_has_an_attention_that_can_be_seen() -> None:
    model, source = small(decoder_layers=3), sentences([6, 4])
    with torch.no_grad(), trace(model, "decoder.*.cross") as tape:
        model(source, tokens(2, 5))
    for layer in range(3):
        weights_BHTS = tape[f"decoder.{layer}.cross"].weights_BHTS
        assert weights_BHTS.shape == (2, 1, 5, 6)
        close(weights_BHTS.sum(-1), torch.ones(2, 1, 5))


def test_gradients_of_the_encoder_are_scaled_in_training_only() -> None:
    """Section 3.4: divided by the number of attentions, except those of the source embeddings."""
    found: list[tuple[Tensor, Tensor]] = []
    model, source, target_BT = small(decoder_layers=2, dropout=0.0), sentences([6, 4]), tokens(2, 5)
    for training in (False, True):
        model.zero_grad()
        model.train(training)(source, target_BT).square().sum().backward()
        layer, embedding = model.encoder.layers[0].conv.weight.grad, model.encoder.embed.tokens.weight.grad
        assert isinstance(layer, Tensor)
        assert isinstance(embedding, Tensor)
        found.append((layer, embedding))
    (layer, embedding), (scaled, directly) = found
    close(scaled, layer / 2, 1e-4 * layer.abs().max().item())
    assert (directly - embedding / 2).abs().max() > 1e-2 * embedding.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_layer_keeps_the_variance_at_the_start(dropout: float) -> None:
    """Section 3.5 and appendix A: about; they approximate the variance of a gated linear unit by a fourth."""
    settings = toy("convs2s", dropout=dropout)
    layer = ConvLayer(Shape(256, 256, 3), settings, causal=False).train()
    assert layer(torch.randn(4, 50, 256)).var().item() == pytest.approx(1.0, abs=0.45)


def test_a_step_costs_the_same_at_every_length() -> None:
    model = small(max_positions=64)
    assert len(set(step_operations(model, sentences([6, 4]), (1, 2, 20, 60)))) == 1


def test_the_authors_model_has_the_published_number_of_parameters() -> None:
    """216 million for WMT en-de: Wu et al. 2019, "Pay Less Attention ...", table 1, row "Gehring et al. (2017)".

    The sizes are those of the authors' code (fairseq, fconv_wmt_en_de); 40,000 BPE types: Gehring et al., section 4.1.
    """
    groups = ((9, 512, 3), (4, 1024, 3), (2, 2048, 1))
    sizes = {"encoder_groups": groups, "decoder_groups": groups, "embedding_width": 768, "output_width": 512}
    settings = dataclasses.replace(settings_of("convs2s"), **sizes)
    with torch.device("meta"):
        model = models.build(settings, source_vocabulary=40_000, target_vocabulary=40_000)
    assert count_parameters(model) == pytest.approx(216e6, rel=0.05)


def test_a_sentence_longer_than_the_positions_is_an_error() -> None:
    with pytest.raises(ModelError, match=r"9 tokens is longer than the 8 learned positions.*model\.max_positions"):
        small(max_positions=8)(sentences([9]), tokens(1, 3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": 4}, "model.kernel must be an odd number, not 4"),
        ({"decoder_groups": ((2, 16, 2),)}, "model.kernel must be an odd number, not 2"),
        ({"encoder_groups": ((0, 16, 3),)}, "model.encoder_groups: a group needs at least one layer"),
        ({"encoder_groups": ((10**8, 16, 3),)}, "at most 256"),
        ({"encoder_groups": ((1, 0, 3),)}, "model.encoder_groups: a layer cannot be 0 units wide"),
        ({"tie_embeddings": "target", "output_width": 10}, "model.tie_embeddings needs model.output_width = 0"),
    ],
)
def test_impossible_settings_are_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        toy("convs2s", **changes)


@pytest.mark.parametrize("arch", ["convs2s", "transformer-tiny"])
def test_the_formula_on_the_inspection_page_gives_the_weights(arch: str) -> None:
    model, source = build(toy(arch)), sentences([6])
    assert isinstance(model, Seq2Seq)
    with torch.no_grad(), trace(model, "decoder.*.cross") as tape:
        model(source, tokens(1, 4))
    record = tape["decoder.0.cross"]
    scores = record.query_BHTK @ record.key_BHSK.transpose(-1, -2)
    if "√d" in model.attention_formula:
        scores = scores / math.sqrt(record.query_BHTK.shape[-1])
    close(record.weights_BHTS, scores.softmax(-1))
