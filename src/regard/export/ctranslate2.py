"""A run as a CTranslate2 model, through `ctranslate2.specs` alone.

Both keep queries, keys and values in one map, so the tables pair one tensor with one. The padding token, always last,
is left out: CTranslate2 needs none, and what is not there is never written. The start token has an embedding like any
other. Positions become a table, because CTranslate2's own sinusoids have other speeds. Attentions of one side have one
number of heads: pruned ones are filled up with zeros to what the fullest of their side has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor

from regard.errors import SettingsError
from regard.export import require_exportable
from regard.export.folder import export_folder
from regard.export.weights import LayerNames, NamePair, fill_heads, pairs_of, to_theirs
from regard.layers.positional_encoding import sinusoids
from regard.models.transformer_settings import TransformerSettings
from regard.run import Run
from regard.tasks.translate.engine import LONGEST, Quantization, import_ctranslate2
from regard.text.tokenizer import EOS, SOS, UNK, Tokenizer

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec


BLOCK = (
    LayerNames("attend.inward", ("self_attention/linear_0/",), "reads"),
    LayerNames("attend.outward", ("self_attention/linear_1/",), "writes"),
    LayerNames("around_attend.norm", ("self_attention/layer_norm/",), "norm"),
    LayerNames("feed.narrow", ("ffn/linear_1/",), "writes"),
    LayerNames("around_feed.norm", ("ffn/layer_norm/",), "norm"),
)
CROSS = (
    LayerNames("cross.query", ("attention/linear_0/",), "reads"),
    LayerNames("cross.memory", ("attention/linear_1/",), "reads"),
    LayerNames("cross.outward", ("attention/linear_2/",), "writes"),
    LayerNames("around_cross.norm", ("attention/layer_norm/",), "norm"),
)
WIDEN = LayerNames("feed.widen", ("ffn/linear_0/",), "reads")
WIDEN_GATED = LayerNames("feed.widen", ("ffn/linear_0/", "ffn/linear_0_noact/"), "reads")
LAST_NORM = LayerNames("norm", ("layer_norm/",), "norm")
NORM_PARTS = ("gamma", "beta")


def convert_run(run: Run, folder: Path, quantization: Quantization = "float32") -> Path:
    """Write a run as a CTranslate2 model into `folder`."""
    if quantization not in get_args(Quantization):
        raise SettingsError(f"quantization {quantization}: choose from {', '.join(get_args(Quantization))}")
    settings = require_exportable(run.recipe, "ctranslate2", where=run.folder)
    import_ctranslate2()
    spec = build_spec(settings, dict(run.load_model().state_dict()), *run.tokenizers)
    spec.validate()
    spec.optimize(quantization)
    longest = settings.max_positions if settings.positions == "learned" else LONGEST
    facts = {"format": "ctranslate2", "quantization": quantization, "longest": longest}
    with export_folder(run, folder, facts) as draft:
        spec.save(str(draft))
        for name, tokenizer in zip(("source", "target"), run.tokenizers, strict=True):
            tokenizer.save(draft, name)
    return folder


def build_spec(
    settings: TransformerSettings, weights: dict[str, Tensor], source: Tokenizer, target: Tokenizer
) -> TransformerSpec:
    """The model as CTranslate2 describes it. `weights` hold tied tensors under each of their names."""
    from ctranslate2.specs.model_spec import index_spec

    most = _most_heads(settings)
    wanted = {name: most[name.partition(".")[0]] for name in settings.attentions}
    weights, tables = _split_off_positions(settings, fill_heads(settings, weights, wanted))
    for name in ("encoder.embed.tokens.weight", "embed.tokens.weight", "output.weight", "output.bias"):
        if name in weights:
            weights[name] = weights[name][:-1]  # padding
    spec = _empty_spec(settings, most)
    named = to_theirs(_pairs(settings, biased="output.bias" in weights), weights) | tables
    for name, tensor in named.items():
        home, _, part = name.rpartition("/")
        setattr(index_spec(spec, home), part, tensor.detach().numpy().copy())  # quantization works in place
    spec.register_source_vocabulary(list(source.tokens[:-1]))
    spec.register_target_vocabulary(list(target.tokens[:-1]))
    spec.config.eos_token, spec.config.unk_token = target.token(EOS), target.token(UNK)
    spec.config.bos_token = spec.config.decoder_start_token = target.token(SOS)
    spec.config.add_source_eos = True
    return spec


def _most_heads(settings: TransformerSettings) -> dict[str, int]:
    """The number of heads of each side: as many as any of its attentions has."""
    return {
        side: max(1, *(settings.heads_in(name) for name in settings.attentions if name.startswith(side)))
        for side in ("encoder", "decoder")
    }


def _empty_spec(settings: TransformerSettings, heads: dict[str, int]) -> TransformerSpec:
    from ctranslate2.specs import Activation, TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

    gated = settings.activation == "swiglu"
    activations = {"relu": Activation.RELU, "gelu": Activation.GELU}
    head_width = settings.head_width or settings.width // settings.heads
    shape = {
        "pre_norm": settings.norm == "before",
        "activation": activations.get(settings.activation, Activation.SWISH),
        "ffn_glu": gated,
        "head_dim": head_width,
        "rotary_dim": head_width if settings.positions == "rotary" else None,
    }
    return TransformerSpec(
        TransformerEncoderSpec(settings.encoder_layers, heads["encoder"], **shape),
        TransformerDecoderSpec(settings.decoder_layers, heads["decoder"], **shape),
    )


def _pairs(settings: TransformerSettings, *, biased: bool) -> Iterator[NamePair]:
    """The table: our names and CTranslate2's."""
    widen = WIDEN_GATED if settings.activation == "swiglu" else WIDEN
    for layer in range(settings.encoder_layers):
        yield from pairs_of(f"encoder.blocks.{layer}.", f"encoder/layer_{layer}/", (*BLOCK, widen), NORM_PARTS)
    for layer in range(settings.decoder_layers):
        layers = (*BLOCK, widen, *CROSS)
        yield from pairs_of(f"decoder.{layer}.", f"decoder/layer_{layer}/", layers, NORM_PARTS)
    if settings.norm == "before":
        yield from pairs_of("encoder.", "encoder/", [LAST_NORM], NORM_PARTS)
        yield from pairs_of("", "decoder/", [LAST_NORM], NORM_PARTS)
    yield NamePair("encoder.embed.tokens.weight", ("encoder/embeddings_0/weight",))
    yield NamePair("embed.tokens.weight", ("decoder/embeddings/weight",))
    yield NamePair("output.weight", ("decoder/projection/weight",))
    if biased:
        yield NamePair("output.bias", ("decoder/projection/bias",))


def _split_off_positions(
    settings: TransformerSettings, weights: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights without positions, and a table of positions for each side.

    Concatenated positions are a sum too: W [e; p] = W1 e + W2 p. W1 goes into the embeddings, W2 into the table.
    """
    left, tables = dict(weights), dict[str, Tensor]()
    for ours, theirs in (("encoder.embed", "encoder"), ("embed", "decoder")):
        join = left.pop(f"{ours}.positions.join.weight", None)
        width = settings.width if join is None else join.shape[1] - settings.width
        if settings.positions == "learned":
            rows = left.pop(f"{ours}.positions.positions.embed.weight")
        elif settings.positions == "sinusoidal":
            rows = sinusoids(LONGEST, width)
        else:
            rows = torch.zeros(LONGEST, width)
        if join is not None:
            left[f"{ours}.tokens.weight"] = left[f"{ours}.tokens.weight"] @ join[:, : settings.width].T
            rows = rows @ join[:, settings.width :].T
        if settings.positions != "rotary" or theirs == "encoder":  # a decoder that rotates takes no table
            tables[f"{theirs}/position_encodings/encodings"] = rows
    return left, tables
