"""A random MarianMTModel of Hugging Face transformers, read through the table of names: the same logits, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from regard import models
from regard.export.marian import pairs, stream_order, to_layout
from regard.export.weights import to_ours
from regard.models.transformer import Transformer
from regard.models.transformer_settings import TransformerSettings as Settings
from regard.run import restore
from tests.toys import Sentences, close

if TYPE_CHECKING:
    from transformers import MarianMTModel

WIDTH, HEADS, INNER, VOCABULARY, PADDING = 24, 4, 40, 37, 36
STORED_ONCE = {"lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}


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


def weights(theirs: MarianMTModel) -> dict[str, Tensor]:
    left_out = STORED_ONCE | {"final_logits_bias"}
    stored = theirs.state_dict()
    return {name: stored[name] for name in stored if name not in left_out and "embed_positions" not in name}


def settings(activation: str) -> Settings:
    return Settings(
        encoder_layers=3, decoder_layers=2, width=WIDTH, heads=HEADS, ffn_width=INNER, activation=activation  # type: ignore[arg-type]
    )  # fmt: skip


def twin(theirs: MarianMTModel, activation: str) -> Transformer:
    ours = models.build(settings(activation), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY).eval()
    assert isinstance(ours, Transformer)
    restore(
        ours, to_ours(pairs(settings(activation)), weights(theirs), stream_order(WIDTH), where="twin"), where="twin"
    )
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
    expected = theirs.model.encoder(source.ids_BS, attention_mask=source.mask_BS.long()).last_hidden_state
    states = ours.encode(source).states_BSD[..., stream_order(WIDTH)]
    close(states[source.mask_BS], expected[source.mask_BS], 1e-4)


def test_there_and_back_is_bit_identical() -> None:
    theirs = marian("relu")
    back = to_layout(
        settings("relu"), pairs(settings("relu")), dict(twin(theirs, "relu").named_parameters()), VOCABULARY
    )
    del back["final_logits_bias"]
    assert back.keys() == weights(theirs).keys()
    assert all(torch.equal(back[name], weight) for name, weight in weights(theirs).items())
