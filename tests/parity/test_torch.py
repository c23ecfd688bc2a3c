"""Our attention and stacks against PyTorch's own, with copied weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.layers.attention import CrossAttention, SelfAttention
from regard.layers.hooks import trace
from regard.models.transformer import DecoderBlock, EncoderBlock, Residual, Transformer
from tests.toys import build, close, sentences, tokens, toy

# ---------------------------------------------------------------------------------------------------------------------
# Copying


def copy_linear(theirs: nn.Linear, ours: nn.Linear) -> None:
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


def copy_attention(theirs: nn.MultiheadAttention, ours: SelfAttention | CrossAttention) -> None:
    """Theirs stacks query, key and value in one matrix; ours does too, or keeps the query apart."""
    parts = [ours.qkv] if isinstance(ours, SelfAttention) else [ours.query, ours.key_value]
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    copy_linear(theirs.out_proj, ours.out)


def copy_norm(theirs: nn.LayerNorm, ours: Residual | nn.Module) -> None:
    theirs.load_state_dict((ours.norm if isinstance(ours, Residual) else ours).state_dict())


def copy_block(theirs: nn.Module, ours: EncoderBlock | DecoderBlock) -> None:
    copy_attention(theirs.self_attn, ours.self_attention)
    copy_linear(theirs.linear1, ours.feed_forward.up)
    copy_linear(theirs.linear2, ours.feed_forward.down)
    around = [ours.self_attention_residual, ours.feed_forward_residual]
    if isinstance(ours, DecoderBlock):
        copy_attention(theirs.multihead_attn, ours.cross_attention)
        around.insert(1, ours.cross_attention_residual)
    for number, residual in enumerate(around, start=1):
        copy_norm(getattr(theirs, f"norm{number}"), residual)


@torch.no_grad()
def twin(ours: Transformer, norm: str, activation: str) -> nn.Transformer:
    """PyTorch's stacks with our weights. Its post-norm stacks would add a last norm that the paper does not have."""
    sizes = {"d_model": 16, "nhead": 4, "dim_feedforward": 32, "dropout": 0.0, "batch_first": True}
    kind = {"activation": activation, "norm_first": norm == "pre"}
    last = nn.LayerNorm(16) if norm == "pre" else None
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes, **kind), 3, last, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes, **kind), 2, last and nn.LayerNorm(16))
    theirs = nn.Transformer(16, 4, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for their_block, our_block in zip(encoder.layers, ours.encoder.blocks, strict=True):
        copy_block(their_block, our_block)
    for their_block, our_block in zip(decoder.layers, ours.decoder, strict=True):
        copy_block(their_block, our_block)
    if norm == "pre":
        copy_norm(encoder.norm, ours.encoder.norm)
        copy_norm(decoder.norm, ours.norm)
    return theirs.eval()


# ---------------------------------------------------------------------------------------------------------------------
# Comparing


@pytest.mark.parametrize("padded", [False, True])
@torch.no_grad()
def test_self_attention(padded: bool) -> None:
    ours, theirs, x_BTD = (
        SelfAttention(12, 3, 4, "here"),
        nn.MultiheadAttention(12, 3, batch_first=True),
        torch.randn(2, 6, 12),
    )
    nn.init.normal_(ours.qkv.bias)
    copy_attention(theirs, ours)
    mask_BT = torch.arange(6) < torch.tensor([[6], [4]]) if padded else None
    expected, weights = theirs(
        x_BTD, x_BTD, x_BTD, key_padding_mask=None if mask_BT is None else ~mask_BT, average_attn_weights=False
    )
    close(ours(x_BTD, mask_BT), expected)
    with trace(ours) as tape:
        close(ours(x_BTD, mask_BT), expected)
    close(tape["here"].weights_BHTS, weights)


@torch.no_grad()
def test_causal_self_attention() -> None:
    ours, theirs = SelfAttention(12, 3, 4, "here", causal=True), nn.MultiheadAttention(12, 3, batch_first=True)
    x_BTD = torch.randn(2, 6, 12)
    copy_attention(theirs, ours)
    hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
    expected, _ = theirs(x_BTD, x_BTD, x_BTD, attn_mask=hidden)
    close(ours(x_BTD), expected)


@torch.no_grad()
def test_cross_attention() -> None:
    ours, theirs = CrossAttention(12, 3, 4, "here"), nn.MultiheadAttention(12, 3, batch_first=True)
    nn.init.normal_(ours.key_value.bias)
    copy_attention(theirs, ours)
    x_BTD, memory_BSD, mask_BS = (
        torch.randn(2, 4, 12),
        torch.randn(2, 6, 12),
        torch.arange(6) < torch.tensor([[6], [3]]),
    )
    expected, _ = theirs(x_BTD, memory_BSD, memory_BSD, key_padding_mask=~mask_BS)
    close(ours(x_BTD, ours.project(memory_BSD), mask_BS), expected)


def test_gradients_of_self_attention() -> None:
    ours, theirs = SelfAttention(12, 3, 4, "here"), nn.MultiheadAttention(12, 3, batch_first=True)
    with torch.no_grad():
        copy_attention(theirs, ours)
    x_BTD, tilt = torch.randn(2, 6, 12), torch.randn(2, 6, 12)
    (ours(x_BTD) * tilt).sum().backward()
    (theirs(x_BTD, x_BTD, x_BTD)[0] * tilt).sum().backward()
    close(ours.qkv.weight.grad, theirs.in_proj_weight.grad)
    close(ours.out.weight.grad, theirs.out_proj.weight.grad)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@torch.no_grad()
def test_stacks(norm: str, activation: str) -> None:
    ours = build(toy("transformer-small", norm=norm, activation=activation))
    assert isinstance(ours, Transformer)
    theirs = twin(ours, norm, activation)
    source, target_BT = sentences([7, 4, 1]), tokens(3, 5)
    padding, future = ~source.mask_BS, torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(
        ours.encoder.embed(source.ids_BS),
        ours.embed(target_BT),
        tgt_mask=future,
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    close(ours.hidden(source, target_BT), expected)
