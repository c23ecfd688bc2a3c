"""Export to CTranslate2 in float32, int16 or int8, by its model specification classes (`ctranslate2.specs`).

Both programs store queries, keys and values in one matrix. So tensors correspond one to one, except that the matrix of
SwiGLU is split in two. The padding token, always last, is removed, so that CTranslate2 cannot output it. The start
token has an embedding like any other token. Positional encodings become a table, because CTranslate2's own sinusoids
have other frequencies. All attentions of the encoder must have the same number of heads, and so must those of the
decoder: pruned heads are replaced by heads of zeros, up to the largest number of heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.config import Recipe
from regard.export import Log, Option, export_folder, transformer_obstacle, transformer_settings
from regard.export.weights import LayerNames, NamePair, fill_heads, pairs_of, to_theirs
from regard.models.transformer_settings import TransformerSettings
from regard.run import Run
from regard.text.tokenizer import EOS, SOS, UNK, Tokenizer

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec
    from torch import Tensor

Quantization = Literal["int8", "int16", "float32"]

NEEDS = ("ctranslate2",)
OPTIONS = {"quantization": Option(("float32", "int16", "int8"), "number type of the weights")}
LONGEST = 1024  # number of positions of an exported model, unless positional encodings are learned

BLOCK = (
    LayerNames("self_attention.qkv", ("self_attention/linear_0/",), "reads"),
    LayerNames("self_attention.out", ("self_attention/linear_1/",), "writes"),
    LayerNames("self_attention_residual.norm", ("self_attention/layer_norm/",), "norm"),
    LayerNames("feed_forward.down", ("ffn/linear_1/",), "writes"),
    LayerNames("feed_forward_residual.norm", ("ffn/layer_norm/",), "norm"),
)
CROSS = (
    LayerNames("cross_attention.query", ("attention/linear_0/",), "reads"),
    LayerNames("cross_attention.key_value", ("attention/linear_1/",), "reads"),
    LayerNames("cross_attention.out", ("attention/linear_2/",), "writes"),
    LayerNames("cross_attention_residual.norm", ("attention/layer_norm/",), "norm"),
)
LAST_NORM = LayerNames("norm", ("layer_norm/",), "norm")
NORM_PARTS = ("gamma", "beta")


def obstacle(recipe: Recipe) -> str:
    return transformer_obstacle(recipe, "CTranslate2", "CTranslate2's encoder attends to the whole sentence")


def write(run: Run, folder: Path, log: Log, *, quantization: Quantization = "float32") -> None:
    settings = transformer_settings(run.recipe)
    spec = build_spec(settings, dict(run.load_model().state_dict()), *run.tokenizers)
    spec.validate()
    spec.optimize(quantization)
    longest = settings.max_positions if settings.positional_encoding == "learned" else LONGEST
    facts = {"format": "ctranslate2", "quantization": quantization, "longest": longest}
    with export_folder(run, folder, facts) as draft:
        spec.save(str(draft))
        for name, tokenizer in zip(("source", "target"), run.tokenizers, strict=True):
            tokenizer.save(draft, name)


def build_spec(
    settings: TransformerSettings, weights: dict[str, Tensor], source: Tokenizer, target: Tokenizer
) -> TransformerSpec:
    """The model as a CTranslate2 specification. `weights` must contain tied tensors under all of their names.

    `source` and `target` are the tokenizers, whose tokens become the vocabularies.
    """
    from ctranslate2.specs import Activation, TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
    from ctranslate2.specs.model_spec import index_spec

    most = {  # the largest number of heads of an attention
        side: max(1, *(settings.heads_in(name) for name in settings.attentions if name.startswith(side)))
        for side in ("encoder", "decoder")
    }
    wanted = {name: most[name.partition(".")[0]] for name in settings.attentions}
    weights = fill_heads(settings, weights, wanted)
    tables = _split_off_positions(settings, weights)
    for name in ("encoder.embed.tokens.weight", "embed.tokens.weight", "output.weight", "output.bias"):
        if name in weights:
            weights[name] = weights[name][:-1]  # without the padding token
    shape = {
        "pre_norm": settings.norm == "pre",
        "activation": {"relu": Activation.RELU, "gelu": Activation.GELU}.get(settings.activation, Activation.SWISH),
        "ffn_glu": settings.activation == "swiglu",
        "head_dim": settings.head_size,
        "rotary_dim": settings.head_size if settings.positional_encoding == "rotary" else None,
    }
    spec = TransformerSpec(
        TransformerEncoderSpec(settings.encoder_layers, most["encoder"], **shape),
        TransformerDecoderSpec(settings.decoder_layers, most["decoder"], **shape),
    )
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


def _pairs(settings: TransformerSettings, *, biased: bool) -> Iterator[NamePair]:
    """Yield each parameter's name in our model and in CTranslate2. `biased`: whether the output layer has a bias."""
    gate = ["ffn/linear_0_noact/"] if settings.activation == "swiglu" else []
    widen = LayerNames("feed_forward.up", ("ffn/linear_0/", *gate), "reads")
    for layer in range(settings.encoder_layers):
        yield from pairs_of(f"encoder.blocks.{layer}.", f"encoder/layer_{layer}/", (*BLOCK, widen), NORM_PARTS)
    for layer in range(settings.decoder_layers):
        yield from pairs_of(f"decoder.{layer}.", f"decoder/layer_{layer}/", (*BLOCK, widen, *CROSS), NORM_PARTS)
    if settings.norm == "pre":
        yield from pairs_of("encoder.", "encoder/", [LAST_NORM], NORM_PARTS)
        yield from pairs_of("", "decoder/", [LAST_NORM], NORM_PARTS)
    yield NamePair("encoder.embed.tokens.weight", ("encoder/embeddings_0/weight",))
    yield NamePair("embed.tokens.weight", ("decoder/embeddings/weight",))
    yield NamePair("output.weight", ("decoder/projection/weight",))
    if biased:
        yield NamePair("output.bias", ("decoder/projection/bias",))


def _split_off_positions(settings: TransformerSettings, left: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove positional encodings from `left`, our weights by name; return them under CTranslate2's names.

    If a model concatenates embedding e and position p, it multiplies both by a matrix: W [e; p] = W1 e + W2 p. Then the
    token embeddings in `left` are replaced by W1 e, and the positional encodings returned are W2 p.
    """
    import torch

    from regard.layers.positional_encoding import sinusoids

    tables = {}
    for ours, theirs in (("encoder.embed", "encoder"), ("embed", "decoder")):
        join = left.pop(f"{ours}.positions.join.weight", None)
        width = settings.width if join is None else join.shape[1] - settings.width
        if settings.positional_encoding == "learned":
            rows = left.pop(f"{ours}.positions.positions.embed.weight")
        elif settings.positional_encoding == "sinusoidal":
            rows = sinusoids(LONGEST, width)
        else:
            rows = torch.zeros(LONGEST, width)
        if join is not None:
            left[f"{ours}.tokens.weight"] = left[f"{ours}.tokens.weight"] @ join[:, : settings.width].T
            rows = rows @ join[:, settings.width :].T
        if settings.positional_encoding != "rotary" or theirs == "encoder":  # a rotary decoder takes no table
            tables[f"{theirs}/position_encodings/encodings"] = rows
    return tables
