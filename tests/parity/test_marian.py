"""A random MarianMTModel of Hugging Face transformers, its weights copied into ours: the same logits.

Three things differ in form. Marian writes positions as [sin | cos] halves and ours interleaves them, so every matrix
that reads or writes the residual stream has its width permuted. Marian keeps query, key and value apart. And Marian
adds a bias to the logits, which its trained models use for nothing but the padding token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from regard.config import Transformer as Settings
from regard.layers.attention import CrossAttention, SelfAttention
from regard.models import build_model
from regard.models.transformer import Block, DecoderBlock, Residual, Transformer
from tests.toys import Sentences, close

if TYPE_CHECKING:
    from transformers import MarianMTModel

WIDTH, HEADS, INNER, VOCABULARY, PADDING = 24, 4, 40, 37, 36
OUR_ORDER = torch.arange(WIDTH).view(2, -1).T.flatten()  # ours[2 i], ours[2 i + 1] are theirs[i], theirs[WIDTH / 2 + i]


def marian(activation: str) -> MarianMTModel:
    transformers = pytest.importorskip("transformers")  # here and not above: it takes seconds
    settings = transformers.MarianConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=3, decoder_layers=2,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=INNER, decoder_ffn_dim=INNER,
        activation_function=activation, scale_embedding=True, max_position_embeddings=64,
        pad_token_id=PADDING, eos_token_id=0, decoder_start_token_id=PADDING, forced_eos_token_id=None,
    )  # fmt: skip
    model = transformers.MarianMTModel(settings).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                weight.add_(0.2 * torch.randn_like(weight))
        model.final_logits_bias.normal_()
    return model


def read(ours: nn.Linear, *theirs: nn.Linear) -> None:
    """Maps that read the stream: their columns change order. Several of theirs are one of ours."""
    ours.weight.copy_(torch.cat([part.weight for part in theirs])[:, OUR_ORDER])
    ours.bias.copy_(torch.cat([part.bias for part in theirs]))


def write(ours: nn.Linear, theirs: nn.Linear) -> None:
    """Maps that write to the stream: their rows change order."""
    ours.weight.copy_(theirs.weight[OUR_ORDER])
    ours.bias.copy_(theirs.bias[OUR_ORDER])


def copy_attention(ours: SelfAttention | CrossAttention, theirs: nn.Module) -> None:
    if isinstance(ours, SelfAttention):
        read(ours.inward, theirs.q_proj, theirs.k_proj, theirs.v_proj)
    else:
        read(ours.query, theirs.q_proj)
        read(ours.memory, theirs.k_proj, theirs.v_proj)
    write(ours.outward, theirs.out_proj)


def copy_norm(ours: Residual, theirs: nn.LayerNorm) -> None:
    ours.norm.weight.copy_(theirs.weight[OUR_ORDER])
    ours.norm.bias.copy_(theirs.bias[OUR_ORDER])


def copy_block(ours: Block | DecoderBlock, theirs: nn.Module) -> None:
    copy_attention(ours.attend, theirs.self_attn)
    copy_norm(ours.around_attend, theirs.self_attn_layer_norm)
    if isinstance(ours, DecoderBlock):
        copy_attention(ours.cross, theirs.encoder_attn)
        copy_norm(ours.around_cross, theirs.encoder_attn_layer_norm)
    read(ours.feed.widen, theirs.fc1)
    write(ours.feed.narrow, theirs.fc2)
    copy_norm(ours.around_feed, theirs.final_layer_norm)


@torch.no_grad()
def twin(theirs: MarianMTModel, activation: str) -> Transformer:
    settings = Settings(
        encoder_layers=3, decoder_layers=2, width=WIDTH, heads=HEADS, inner=INNER, activation=activation  # type: ignore[arg-type]
    )  # fmt: skip
    ours = build_model(settings, VOCABULARY, VOCABULARY, joint=True).eval()
    assert isinstance(ours, Transformer)
    ours.output.weight.copy_(theirs.model.shared.weight[:, OUR_ORDER])
    for our_block, their_block in zip(ours.encoder.blocks, theirs.model.encoder.layers, strict=True):
        copy_block(our_block, their_block)
    for our_block, their_block in zip(ours.decoder, theirs.model.decoder.layers, strict=True):
        copy_block(our_block, their_block)
    return ours


def batch() -> tuple[Sentences, Tensor]:
    mask_BS = torch.arange(9) < torch.tensor([[9], [5], [2]])
    ids_BS = torch.randint(1, PADDING, (3, 9)).masked_fill(~mask_BS, PADDING)
    return Sentences(ids_BS, mask_BS), torch.randint(1, PADDING, (3, 7))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@torch.no_grad()
def test_logits(activation: str) -> None:
    theirs = marian(activation)
    ours, (source, target_BT) = twin(theirs, activation), batch()
    expected = theirs(input_ids=source.ids_BS, attention_mask=source.mask_BS.long(), decoder_input_ids=target_BT).logits
    close(ours(source, target_BT) + theirs.final_logits_bias, expected, 1e-4)
    assert expected.std() > 0.1  # there is something to agree on


@torch.no_grad()
def test_encoder_states() -> None:
    theirs = marian("relu")
    ours, (source, _) = twin(theirs, "relu"), batch()
    expected = theirs.model.encoder(source.ids_BS, attention_mask=source.mask_BS.long()).last_hidden_state[
        ..., OUR_ORDER
    ]
    close(ours.encode(source).states_BSD[source.mask_BS], expected[source.mask_BS], 1e-4)
