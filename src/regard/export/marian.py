"""Export to Marian, in the layout of Hugging Face `transformers`: weights, configuration, search settings, tokenizers.

Weights differ in four ways. Marian's sinusoids are [sin | cos] halves while ours interleave sine and cosine, so the
dimensions of the residual stream have another order, in every matrix that reads or writes it. Marian has separate
matrices for query, key and value. Marian adds a bias to the logits, which our models may lack. And all attentions of
Marian have the same number of heads: pruned heads are replaced by heads of zeros.

Search settings are converted to settings of `generate`, and back, if both have the same meaning; the names of all other
settings are returned, to be logged. `generate` counts the start token in `min_length`. If `generate` normalizes scores,
it does so after tokens are forbidden; we normalize before, so that scores are always the scores of the model. The
`repetition_penalty` of `generate` equals ours in a beam search that does not normalize; the greedy search of `generate`
applies the penalty to logits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import Recipe, SearchSettings
from regard.errors import RunError
from regard.export import Log, Option, export_folder, transformer_obstacle, transformer_settings, write_json
from regard.export.weights import LayerNames, NamePair, fill_heads, pairs_of, to_theirs
from regard.models.transformer_settings import TransformerSettings
from regard.run import Run
from regard.text.subword import MappedTokenizer, SubwordTokenizer
from regard.text.tokenizer import EOS, SOS, UNK, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

NEEDS: tuple[str, ...] = ()
OPTIONS: dict[str, Option] = {}
LONGEST = 1024  # number of positions of the exported model
BIAS = "final_logits_bias"

BLOCK = (
    LayerNames("self_attention.qkv", ("self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."), "reads"),
    LayerNames("self_attention.out", ("self_attn.out_proj.",), "writes"),
    LayerNames("self_attention_residual.norm", ("self_attn_layer_norm.",), "norm"),
    LayerNames("feed_forward.up", ("fc1.",), "reads"),
    LayerNames("feed_forward.down", ("fc2.",), "writes"),
    LayerNames("feed_forward_residual.norm", ("final_layer_norm.",), "norm"),
)
CROSS = (
    LayerNames("cross_attention.query", ("encoder_attn.q_proj.",), "reads"),
    LayerNames("cross_attention.key_value", ("encoder_attn.k_proj.", "encoder_attn.v_proj."), "reads"),
    LayerNames("cross_attention.out", ("encoder_attn.out_proj.",), "writes"),
    LayerNames("cross_attention_residual.norm", ("encoder_attn_layer_norm.",), "norm"),
)
_SEPARATE = (
    ("encoder.embed.tokens.weight", "model.encoder.embed_tokens.weight"),
    ("embed.tokens.weight", "model.decoder.embed_tokens.weight"),
)
EMBEDDINGS = {
    "all": (("encoder.embed.tokens.weight", "model.shared.weight"),),
    "target": _SEPARATE,
    "none": (*_SEPARATE, ("output.weight", "lm_head.weight")),
}
"""For each `model.tie_embeddings`: our name and Marian's name of the embedding matrices that are stored."""
# Our search settings that `generate` lacks.
MISSING_THERE = ("length_penalty_form", "coverage_penalty", "beam_groups", "sample", "replace_unknown")
# Settings of `generate` that we lack, with the values that have no effect.
MISSING_HERE = {
    "do_sample": False,
    "num_beam_groups": 1,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
}
NUMBERS = ("num_beams", "length_penalty", "no_repeat_ngram_size", "min_length", "min_new_tokens", "repetition_penalty")
RENORMALIZE = "renormalize_logits"


def obstacle(recipe: Recipe) -> str:
    def further(model: TransformerSettings) -> dict[str, bool]:
        return {'model.norm = "pre"; Marian normalizes after each sub-layer': model.norm == "pre"}

    return layout_obstacle(recipe, "Marian", further)


def layout_obstacle(recipe: Recipe, program: str, further: Callable[[TransformerSettings], Mapping[str, bool]]) -> str:
    """Why a run cannot be exported to `program`, one of the Transformers with sinusoids in `transformers`.

    `further` returns more reasons for a model, each with whether it applies.
    """
    if reason := transformer_obstacle(recipe, program, f"{program} attends to the whole sentence"):
        return reason
    model, tokenizer = transformer_settings(recipe), recipe.tokenizer
    places = model.positional_encoding
    uneven = model.head_width not in (0, model.width / model.heads)
    obstacles = {
        **further(model),
        f'model.positional_encoding = "{places}"; {program} adds sinusoids': places != "sinusoidal",
        f'model.position_mode = "{model.position_mode}"; {program} adds positions': model.position_mode != "add",
        f'model.activation = "{model.activation}"; {program} has no gated layer': model.activation == "swiglu",
        f"model.head_width = {model.head_width}; {program}'s head width is model.width / model.heads": uneven,
        f'tokenizer.kind = "{tokenizer.kind}"; {program} uses SentencePiece': tokenizer.kind in ("word", "character"),
        f"tokenizer.lowercase = true; {program}'s tokenizer cannot lowercase": tokenizer.lowercase,
    }
    return next((reason for reason, applies in obstacles.items() if applies), "")


def pairs(settings: TransformerSettings) -> Iterator[NamePair]:
    """Yield the name of each parameter in our model and in Marian."""
    for layer in range(settings.encoder_layers):
        yield from pairs_of(f"encoder.blocks.{layer}.", f"model.encoder.layers.{layer}.", BLOCK)
    for layer in range(settings.decoder_layers):
        yield from pairs_of(f"decoder.{layer}.", f"model.decoder.layers.{layer}.", (*BLOCK, *CROSS))
    for ours, theirs in EMBEDDINGS[settings.tie_embeddings]:
        yield NamePair(ours, (theirs,), (1,))


def stream_order(width: int) -> Tensor:
    """For each dimension of Marian's residual stream (all sines, then all cosines), its index in our stream."""
    import torch

    return torch.arange(width).view(-1, 2).T.flatten()


def write(run: Run, folder: Path, log: Log) -> None:
    """Write a folder that `transformers` opens as MarianMTModel and MarianTokenizer."""
    settings = transformer_settings(run.recipe)
    config = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "normalize_before": False,
        "share_encoder_decoder_embeddings": settings.tie_embeddings == "all",
        "tie_word_embeddings": settings.tie_embeddings != "none",
        "decoder_vocab_size": run.tokenizers[1].size,
    }
    write_layout(run, folder, log, pairs(settings), config)


def write_layout(run: Run, folder: Path, log: Log, names: Iterable[NamePair], config: Mapping[str, Any]) -> None:
    """Write the folder of a model of `transformers`: weights by these `names`, configuration, search, tokenizers.

    `config`: the values of config.json that depend on the class of the model.
    """
    from safetensors.torch import save_file

    settings = transformer_settings(run.recipe)
    source, target = run.tokenizers
    weights = to_layout(settings, names, dict(run.load_model().named_parameters()), target.size)
    search, lost = to_generation(run.recipe.search, target)
    generation = {**_special_ids(target), "max_length": LONGEST // 2, **search}
    with export_folder(run, folder, {"format": config["model_type"], "tokenizer": source.kind}) as draft:
        save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})
        write_json(draft / "config.json", {**_config(settings, source, target), **config})
        write_json(draft / "generation_config.json", generation)
        _write_tokenizers(draft, run.recipe, source, target)
    if lost:
        log(f"not exported, because `generate` of transformers has no such setting: {', '.join(lost)}")


def to_layout(
    settings: TransformerSettings, names: Iterable[NamePair], weights: Mapping[str, Tensor], vocabulary: int
) -> dict[str, Tensor]:
    """Convert our weights to the `names` of transformers and its order of dimensions.

    `vocabulary`: number of target tokens.
    """
    import torch

    rest = fill_heads(settings, weights, dict.fromkeys(settings.attentions, settings.heads))
    bias_V = rest.pop("output.bias", torch.zeros(vocabulary))
    named = to_theirs(names, rest, stream_order(settings.width)) | {BIAS: bias_V[None]}
    return {name: tensor.detach().contiguous() for name, tensor in named.items()}


def to_generation(search: SearchSettings, target: Tokenizer) -> tuple[dict[str, Any], list[str]]:
    """Our search settings as arguments of transformers' `generate`, and "name = value" of those that it lacks."""
    chosen = [target.tokens.index(token) for token in search.suppress_tokens if token in target.tokens]
    generation: dict[str, Any] = {
        "num_beams": search.beam_size,
        "length_penalty": search.length_penalty,
        "early_stopping": True if search.stop == "beam-full" else "never",
        "suppress_tokens": list(dict.fromkeys([UNK, SOS, target.pad, *chosen])),
    }
    lost = [name for name in MISSING_THERE if getattr(search, name) != getattr(SearchSettings(), name)]
    if "length_penalty_form" in lost and not search.length_penalty:
        lost.remove("length_penalty_form")  # both forms divide by one
    if search.no_repeat_ngram_size:
        generation["no_repeat_ngram_size"] = search.no_repeat_ngram_size
    if search.min_length:
        generation["min_length"] = search.min_length + 1
    if search.repetition_penalty != 1 and search.beam_size > 1:
        generation["repetition_penalty"] = search.repetition_penalty
    elif search.repetition_penalty != 1:
        lost.append("repetition_penalty")
    # We renormalize without the tokens that are never output, but not without tokens that are forbidden at some steps.
    forbids = search.no_repeat_ngram_size or search.min_length or chosen or "repetition_penalty" in generation
    generation[RENORMALIZE] = not forbids
    return generation, [f"search.{name} = {json.dumps(getattr(search, name))}" for name in lost]


def from_generation(
    generation: Mapping[str, Any], tokens: Mapping[int, str], *, where: str
) -> tuple[dict[str, Any], list[str]]:
    """Arguments of transformers' `generate` as our search settings, and "name = value" of those that we lack.

    `tokens` has the target tokens by id, without special tokens. `where` is the folder, for error messages.
    """
    given = {name: value for name, value in generation.items() if value is not None}
    for name in NUMBERS:
        if isinstance(value := given.get(name, 0), bool) or not isinstance(value, int | float):
            raise RunError(f"{where}: {name} = {json.dumps(value)} must be a number; correct generation_config.json")
    try:
        alone = [ids[0] for ids in given.get("bad_words_ids", []) if len(ids) == 1]
        forbidden = dict.fromkeys([*given.get("suppress_tokens", []), *alone])
    except TypeError:
        raise RunError(f"{where}: suppress_tokens or bad_words_ids is no list of ids; correct it") from None
    search = {
        "beam_size": given.get("num_beams", 1),
        "length_penalty": given.get("length_penalty", 1.0),
        "no_repeat_ngram_size": given.get("no_repeat_ngram_size", 0),
        "min_length": given.get("min_new_tokens", max(given.get("min_length", 0) - 1, 0)),
        "suppress_tokens": [tokens[id] for id in forbidden if id in tokens],
    }
    lost = [name for name, plain in MISSING_HERE.items() if given.get(name, plain) != plain]
    if any(len(ids) > 1 for ids in given.get("bad_words_ids", [])):
        lost.append("bad_words_ids")
    early = given.get("early_stopping", False)
    # By default, `generate` stops if no open hypothesis would win at its present length. If length is not rewarded,
    # that is exact: a hypothesis that cannot win now cannot win later.
    if early is True:
        search["stop"] = "beam-full"
    elif early == "never" or (search["beam_size"] > 1 and search["length_penalty"] <= 0):
        search["stop"] = "exact"
    elif "early_stopping" in given and search["beam_size"] > 1:
        lost.append("early_stopping")
    if (factor := given.get("repetition_penalty", 1.0)) > 1 and search["beam_size"] > 1 and not given.get(RENORMALIZE):
        search["repetition_penalty"] = factor
    elif factor != 1:
        lost.append("repetition_penalty")
    return search, [f"{name} = {json.dumps(given[name])}" for name in lost]


def _config(settings: TransformerSettings, source: Tokenizer, target: Tokenizer) -> dict[str, Any]:
    sides = {
        f"{side}_{name}": value
        for side, layers in (("encoder", settings.encoder_layers), ("decoder", settings.decoder_layers))
        for name, value in {"layers": layers, "attention_heads": settings.heads, "ffn_dim": settings.ffn_width}.items()
    }
    return {
        "d_model": settings.width,
        **sides,
        "activation_function": settings.activation,
        "dropout": settings.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "max_position_embeddings": LONGEST,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_embedding": False,
        "vocab_size": source.size,
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
    write_json(folder / "vocab.json", {token: id for id, token in enumerate(source.tokens)})
    if separate:
        write_json(folder / "target_vocab.json", {token: id for id, token in enumerate(target.tokens)})
    (folder / "source.spm").write_bytes(_spm(source))
    (folder / "target.spm").write_bytes(_spm(target))
    described = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": recipe.data.source_language or None,
        "target_lang": recipe.data.target_language or None,
        "separate_vocabs": separate,
        "bos_token": source.token(SOS),  # a special token is not part of decoded text
        "model_max_length": LONGEST,
        "clean_up_tokenization_spaces": False,
    }
    write_json(folder / "tokenizer_config.json", described)


SQUEEZE_SPACES = b"\x1a\x02\x20\x01"
"""Setting that is appended to a SentencePiece model, because Marian's tokenizer does not remove extra spaces itself.

It is field 3 (normalization) with its field 4 (remove extra spaces) true; protocol buffers merge appended fields.
"""


def _spm(tokenizer: Tokenizer) -> bytes:
    if isinstance(tokenizer, MappedTokenizer):
        return tokenizer.model
    assert isinstance(tokenizer, SubwordTokenizer)
    return tokenizer.model + SQUEEZE_SPACES
