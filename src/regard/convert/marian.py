"""Marian's layout as Hugging Face `transformers` keeps it: the table of names, and a run written as such a folder.

Four things differ in form. Marian writes positions as [sin | cos] halves where ours interleave sine and cosine, so the
dimensions of the residual stream stand in another order, in every matrix that reads or writes it. Marian keeps query,
key and value apart. Marian adds a bias to the scores of the vocabulary, which ours may lack. And Marian's attentions
all have one number of heads: those that ours have lost are filled up with zeros.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config import Recipe, Transformer
from regard.convert.folder import export_folder
from regard.convert.heads import fill_heads
from regard.convert.marian_search import to_generation
from regard.convert.names import Layer, Pair, pairs_of, to_theirs
from regard.convert.support import require_exportable
from regard.data.mapped import MappedTokenizer
from regard.data.subword import SubwordTokenizer
from regard.data.tokenizer import EOS, SOS, Tokenizer
from regard.run import Run

LONGEST = 1024
"""Positions that the exported model is prepared for."""
BIAS = "final_logits_bias"

BLOCK = (
    Layer("attend.inward", ("self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."), "reads"),
    Layer("attend.outward", ("self_attn.out_proj.",), "writes"),
    Layer("around_attend.norm", ("self_attn_layer_norm.",), "norm"),
    Layer("feed.widen", ("fc1.",), "reads"),
    Layer("feed.narrow", ("fc2.",), "writes"),
    Layer("around_feed.norm", ("final_layer_norm.",), "norm"),
)
CROSS = (
    Layer("cross.query", ("encoder_attn.q_proj.",), "reads"),
    Layer("cross.memory", ("encoder_attn.k_proj.", "encoder_attn.v_proj."), "reads"),
    Layer("cross.outward", ("encoder_attn.out_proj.",), "writes"),
    Layer("around_cross.norm", ("encoder_attn_layer_norm.",), "norm"),
)
EMBEDDINGS = {
    "all": (("encoder.embed.tokens.weight", "model.shared.weight"),),
    "target": (
        ("encoder.embed.tokens.weight", "model.encoder.embed_tokens.weight"),
        ("embed.tokens.weight", "model.decoder.embed_tokens.weight"),
    ),
    "none": (
        ("encoder.embed.tokens.weight", "model.encoder.embed_tokens.weight"),
        ("embed.tokens.weight", "model.decoder.embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
    ),
}
"""By `model.tie`: the matrices that are stored, each under the one name that both sides keep it under."""
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish"}
"""Our names and Marian's."""


def pairs(settings: Transformer) -> Iterator[Pair]:
    """The table: our names and Marian's."""
    for layer in range(settings.encoder_layers):
        yield from pairs_of(f"encoder.blocks.{layer}.", f"model.encoder.layers.{layer}.", BLOCK)
    for layer in range(settings.decoder_layers):
        yield from pairs_of(f"decoder.{layer}.", f"model.decoder.layers.{layer}.", (*BLOCK, *CROSS))
    for ours, theirs in EMBEDDINGS[settings.tie]:
        yield Pair(ours, (theirs,), (1,))


def stream_order(width: int) -> Tensor:
    """For each dimension of Marian's residual stream the one of ours: first the sines, then the cosines."""
    return torch.arange(width).view(-1, 2).T.flatten()


def export_marian(run: Run, folder: Path, tell: Callable[[str], None] | None = None) -> Path:
    """Write a run as a folder that `transformers` opens as MarianMTModel and MarianTokenizer.

    `tell` hears what of the run's search does not go with it.
    """
    from safetensors.torch import save_file

    settings = require_exportable(run.recipe, "marian", where=run.folder)
    source, target = run.tokenizers
    weights = to_marian(settings, dict(run.load_model().named_parameters()), target.size)
    search, lost = to_generation(run.recipe.search, target)
    generation = {**_special_ids(target), "max_length": LONGEST // 2, **search}
    with export_folder(run, folder, {"format": "marian", "tokenizer": source.kind}) as draft:
        save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})
        _write_json(draft / "config.json", _config(settings, source, target))
        _write_json(draft / "generation_config.json", generation)
        _write_tokenizers(draft, run.recipe, source, target)
    if lost and tell:
        tell(f"`generate` of transformers has no such settings and goes without: {', '.join(lost)}")
    return folder


def to_marian(settings: Transformer, weights: Mapping[str, Tensor], vocabulary: int) -> dict[str, Tensor]:
    """Our weights under Marian's names, in Marian's order."""
    rest = fill_heads(settings, weights, dict.fromkeys(settings.attentions, settings.heads))
    bias_V = rest.pop("output.bias", torch.zeros(vocabulary))
    named = to_theirs(pairs(settings), rest, stream_order(settings.width)) | {BIAS: bias_V[None]}
    return {name: tensor.detach().contiguous() for name, tensor in named.items()}


def _config(settings: Transformer, source: Tokenizer, target: Tokenizer) -> dict[str, Any]:
    sides = {
        f"{side}_{name}": value
        for side, layers in (("encoder", settings.encoder_layers), ("decoder", settings.decoder_layers))
        for name, value in {"layers": layers, "attention_heads": settings.heads, "ffn_dim": settings.inner}.items()
    }
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "d_model": settings.width,
        **sides,
        "activation_function": ACTIVATIONS[settings.activation],
        "dropout": settings.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "max_position_embeddings": LONGEST,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "share_encoder_decoder_embeddings": settings.tie == "all",
        "tie_word_embeddings": settings.tie != "none",
        "vocab_size": source.size,
        "decoder_vocab_size": target.size,
        **_special_ids(target),
        "dtype": "float32",
    }


def _special_ids(target: Tokenizer) -> dict[str, int | None]:
    return {
        "eos_token_id": EOS,
        "bos_token_id": None,
        "pad_token_id": target.pad,
        "decoder_start_token_id": SOS,
        "forced_eos_token_id": None,
    }


def _write_tokenizers(folder: Path, recipe: Recipe, source: Tokenizer, target: Tokenizer) -> None:
    separate = source.tokens != target.tokens
    _write_json(folder / "vocab.json", {token: id for id, token in enumerate(source.tokens)})
    if separate:
        _write_json(folder / "target_vocab.json", {token: id for id, token in enumerate(target.tokens)})
    (folder / "source.spm").write_bytes(_spm(source))
    (folder / "target.spm").write_bytes(_spm(target))
    described = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": recipe.data.source_language or None,
        "target_lang": recipe.data.target_language or None,
        "separate_vocabs": separate,
        "bos_token": source.token(SOS),  # special, so that it is left out of what is decoded
        "model_max_length": LONGEST,
        "clean_up_tokenization_spaces": False,
    }
    _write_json(folder / "tokenizer_config.json", described)


SQUEEZE_SPACES = b"\x1a\x02\x20\x01"
"""Field 3 of a SentencePiece model (how it normalises) with its field 4 (no extra spaces) true. Protocol buffers merge
what is appended. We squeeze spaces before SentencePiece sees them; Marian's tokenizer leaves that to SentencePiece."""


def _spm(tokenizer: Tokenizer) -> bytes:
    if isinstance(tokenizer, MappedTokenizer):
        return tokenizer.model
    assert isinstance(tokenizer, SubwordTokenizer)
    return tokenizer.model + SQUEEZE_SPACES


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
