"""The Transformer's parts and options, each against what it says it does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard import models
from regard.errors import ModelError, SettingsError
from regard.layers.hooks import attention_hooks, trace
from regard.layers.positional_encoding import NoPositions, sinusoids
from regard.models.base import count_parameters, mask_or_none
from regard.models.transformer import (
    Embedding,
    Encoder,
    EncoderBlock,
    FeedForward,
    Residual,
    Transformer,
    zero_init_residual,
)
from regard.models.transformer_settings import TransformerSettings as Settings
from tests.toys import VOCABULARY, Sentences, build, close, sentences, tokens, toy, walk


def small(**changes: Any) -> Transformer:
    model = build(toy("transformer-small", **changes))
    assert isinstance(model, Transformer)
    return model


def shape(**changes: Any) -> Settings:
    return Settings(**({"width": 8, "heads": 2, "ffn_width": 16, "dropout": 0.0} | changes))


# ---------------------------------------------------------------------------------------------------------------------
# Parts


@pytest.mark.parametrize(("activation", "function"), [("relu", F.relu), ("gelu", F.gelu)])
def test_feed_forward_is_two_maps_around_a_non_linearity(activation: str, function) -> None:
    feed, x = FeedForward(4, 6, activation), torch.randn(2, 3, 4)
    close(feed(x), feed.down(function(feed.up(x))), 1e-6)


def test_swiglu_gates_one_map_with_another() -> None:
    feed, x = FeedForward(4, 6, "swiglu"), torch.randn(2, 3, 4)
    gate, value = F.linear(x, feed.up.weight[:6]), F.linear(x, feed.up.weight[6:])
    close(feed(x), feed.down(gate * gate.sigmoid() * value), 1e-6)


def test_a_quiet_start_lets_the_stream_through_and_the_gradient_in() -> None:
    model = small(norm="pre")
    zero_init_residual(model)
    source, target = sentences([5, 3]), tokens(2, 4)
    close(model.hidden(source, target), model.norm(model.embed(target)), 1e-6)
    model(source, target).square().sum().backward()
    first = model.decoder[0]
    for layer in (first.self_attention.out, first.cross_attention.out, first.feed_forward.down):
        assert layer.weight.grad.abs().max() > 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad
    model(source, target).square().sum().backward()
    assert first.self_attention.qkv.weight.grad.abs().max() > 0


def test_norm_after_is_the_papers() -> None:
    around, x, update = Residual(shape(norm="post")), torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    assert around.enter(x) is x
    close(around.leave(x, update), F.layer_norm(x + update, [8]), 1e-6)


def test_norm_before_leaves_the_stream_alone() -> None:
    around, x, update = Residual(shape(norm="pre")), torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    close(around.enter(x), F.layer_norm(x, [8]), 1e-6)
    close(around.leave(x, update), x + update, 0)


def test_embeddings_are_scaled_by_the_root_of_the_width_and_placed() -> None:
    model = small()
    ids_BT = tokens(2, 5)
    expected = model.embed.tokens.weight[ids_BT] * math.sqrt(16) + sinusoids(5, 16, start=3)
    close(model.embed(ids_BT, 3), expected, 1e-6)


def test_embeddings_start_with_unit_variance() -> None:
    embed = Embedding(500, shape(width=64), NoPositions())
    assert (embed.tokens.weight * embed.scale).std().item() == pytest.approx(1.0, abs=0.05)


def test_dropout_is_where_section_5_4_has_it() -> None:
    """On the sum of embedding and position, and on each sub-layer's output: one place each, none in attention."""
    model = small(dropout=0.25)
    dropping = [name for name, module in model.named_modules() if getattr(module, "dropped", 0)]
    expected = ["encoder.embed.drop"]
    expected += [
        f"encoder.blocks.{n}.{part}_residual.drop" for n in range(3) for part in ("self_attention", "feed_forward")
    ]
    expected += [
        f"decoder.{n}.{part}_residual.drop"
        for n in range(2)
        for part in ("self_attention", "cross_attention", "feed_forward")
    ]
    assert dropping == expected


def test_training_drops_and_evaluation_does_not() -> None:
    model, source, target_BT = small(dropout=0.25), sentences([5, 3]), tokens(2, 4)
    assert torch.equal(model(source, target_BT), model(source, target_BT))
    model.train()
    assert not torch.equal(model(source, target_BT), model(source, target_BT))


def test_words_are_hidden_as_a_whole_while_training() -> None:
    embed, ids_BT = Embedding(9, shape(), NoPositions(), word_dropout=0.5), tokens(20, 30) % 9
    torch.testing.assert_close(embed.eval()(ids_BT), embed.tokens(ids_BT) * embed.scale)
    torch.manual_seed(0)
    found = embed.train()(ids_BT)
    hidden = (found == 0).all(-1)
    assert hidden.float().mean().item() == pytest.approx(0.5, abs=0.1)
    torch.testing.assert_close(found[~hidden], 2 * embed.scale * embed.tokens(ids_BT)[~hidden])


# ---------------------------------------------------------------------------------------------------------------------
# Options


def test_all_embeddings_are_one_matrix() -> None:
    model = small(tie_embeddings="all")
    assert model.encoder.embed.tokens.weight is model.embed.tokens.weight is model.output.weight


def test_target_and_output_are_one_matrix() -> None:
    model = models.build(toy("transformer-small", tie_embeddings="target"), source_vocabulary=11, target_vocabulary=13)
    assert isinstance(model, Transformer)
    assert model.embed.tokens.weight is model.output.weight
    assert model.encoder.embed.tokens.weight.shape == (11, 16)
    assert model.output.weight.shape == (13, 16)


def test_no_embeddings_are_shared() -> None:
    model = small(tie_embeddings="none")
    weights = (model.encoder.embed.tokens.weight, model.embed.tokens.weight, model.output.weight)
    assert len({id(weight) for weight in weights}) == 3


def test_tying_all_needs_one_vocabulary() -> None:
    with pytest.raises(SettingsError, match=r"tokenizer\.joint"):
        models.build(toy("transformer-small", tie_embeddings="all"), source_vocabulary=11, target_vocabulary=13)


def test_depths_are_separate() -> None:
    model = small(encoder_layers=5, decoder_layers=1)
    assert sum(name.startswith("encoder") for name in attention_hooks(model)) == 5
    assert sum(name.startswith("decoder") for name in attention_hooks(model)) == 2


def test_heads_may_have_any_width() -> None:
    model = small(head_width=10)
    with trace(model, "decoder.0.cross") as tape:
        model(sentences([5, 3]), tokens(2, 4))
    assert tape["decoder.0.cross"].output_BHTK.shape == (2, 4, 4, 10)


def test_only_norms_before_have_a_norm_at_the_end() -> None:
    assert isinstance(small(norm="pre").norm, nn.LayerNorm)
    assert count_parameters(small(norm="pre")) == count_parameters(small(norm="post")) + 2 * 2 * 16


def test_a_window_limits_the_encoder_alone() -> None:
    model, source = small(attention_window=3), sentences([9])
    with trace(model, "*") as tape:
        model(source, tokens(1, 6))
    assert torch.count_nonzero(tape["encoder.0.self"].weights_BHTS[0, 0]) == 9 + 2 * 8
    assert torch.count_nonzero(tape["decoder.0.self"].weights_BHTS[0, 0]) == 6 * 7 / 2
    assert torch.count_nonzero(tape["decoder.0.cross"].weights_BHTS[0, 0]) == 6 * 9


def test_sinusoids_go_past_any_sentence_seen() -> None:
    model, short, target_BT = small(), sentences([4]), tokens(1, 3)
    before = model(short, target_BT)
    assert model(sentences([300]), tokens(1, 200)).isfinite().all()
    assert torch.equal(model(short, target_BT), before)


def test_learned_positions_refuse_a_longer_sentence_on_either_side() -> None:
    model = small(positional_encoding="learned", max_positions=8)
    model(sentences([8]), tokens(1, 8))
    with pytest.raises(ModelError, match="a sentence of 9 tokens is longer than the 8 learned positions"):
        model(sentences([9]), tokens(1, 2))
    with pytest.raises(ModelError, match="9 tokens"):
        walk(model, sentences([2]), tokens(1, 1, 9))


def test_without_positions_the_source_is_a_set() -> None:
    model, source, target_BT = small(positional_encoding="none"), sentences([6]), tokens(1, 4)
    turned = source._replace(ids_BS=source.ids_BS.flip(1))
    close(model(turned, target_BT), model(source, target_BT))
    other = small()
    assert (other(turned, target_BT) - other(source, target_BT)).abs().max() > 1e-3


def test_an_empty_sentence_gives_numbers() -> None:
    model = small()
    source = Sentences(tokens(2, 3), torch.tensor([[True, True, True], [False, False, False]]))
    logits = model.train()(source, tokens(2, 4))
    logits.square().mean().backward()
    assert logits.isfinite().all()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


def test_a_batch_without_padding_needs_no_mask() -> None:
    assert mask_or_none(torch.ones(2, 3, dtype=torch.bool)) is None
    mask_BS = torch.tensor([[True, False]])
    assert mask_or_none(mask_BS) is mask_BS


def test_the_memory_is_kept_once_for_all_beams() -> None:
    """Keys and values [B, H, S, K] for each decoder layer: no beam axis."""
    memory = small().encode(sentences([5, 3]))
    assert [part.key.shape for part in memory.extra] == [(2, 4, 5, 4)] * 2


def test_a_large_preset_builds_and_runs() -> None:
    """The full width of base, one layer each."""
    model = models.build(
        Settings(encoder_layers=1, decoder_layers=1), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY
    ).eval()
    with torch.no_grad():
        logits = model(sentences([5, 3]), tokens(2, 4))
    assert logits.shape == (2, 4, VOCABULARY)
    assert 0.2 < logits.std().item() < 5  # normed states times rows of unit length


# ---------------------------------------------------------------------------------------------------------------------
# Encoder alone, decoder alone


def test_an_encoder_alone_gives_states_to_classify() -> None:
    encoder = Encoder(Embedding(VOCABULARY, shape(), NoPositions()), shape(encoder_layers=2))
    source = sentences([5, 3])
    memory = encoder(source)
    assert memory.states_BSD.shape == (2, 5, 8)
    assert memory.mask_BS is source.mask_BS
    nn.Linear(8, 3)(memory.states_BSD[:, 0]).sum().backward()
    assert list(attention_hooks(encoder)) == ["encoder.0.self", "encoder.1.self"]


def test_a_causal_block_steps_as_it_reads() -> None:
    block, x_BTD = EncoderBlock(shape(), "decoder.0", causal=True), torch.randn(2, 5, 8)
    cache, outputs = block.self_attention.start(2, 1), []
    for x_BD in x_BTD.unbind(1):
        output, cache = block.step(x_BD[:, None], cache)
        outputs.append(output)
    close(torch.cat(outputs, dim=1), block(x_BTD))
