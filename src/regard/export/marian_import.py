"""Import of published Marian models (OPUS-MT, in the layout of Hugging Face `transformers`) as run folders.

Marian has no start token: its decoder starts with the padding token. Our start token gets its own embedding, a copy of
the padding token's embedding. So token ids have our usual order: end, unknown, start, the other tokens, padding.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import __version__
from regard.config import Recipe
from regard.config.recipe import make_recipe
from regard.errors import RunError
from regard.export import Log, read_mark, transformer_settings
from regard.export.marian import BIAS, SQUEEZE_SPACES, from_generation, pairs, stream_order
from regard.export.weights import to_ours
from regard.models.transformer_settings import TransformerSettings
from regard.run import Run
from regard.text.subword import SubwordTokenizer, load
from regard.text.tokenizer import FIRST_SPECIALS, PAD_TOKEN, SOS, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

HELP = (
    "config.json, model.safetensors or pytorch_model.bin, source.spm, target.spm and vocab.json of a Marian model, "
    "e.g. of OPUS-MT, as Hugging Face transformers saves it"
)
END, UNKNOWN, START = FIRST_SPECIALS
# Values that the configuration must have, if it has the key, because our models cannot differ in them.
FIXED = {
    "model_type": "marian",
    "scale_embedding": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
}

Vocabulary = Mapping[str, int]


def read(folder: Path, out: Path, log: Log) -> Run:
    """Make a run folder `out` from the Marian model in `folder`. After an error, no incomplete run folder remains."""
    import torch

    if not (folder / "config.json").is_file():
        raise RunError(f"{folder}: has no config.json; give a Marian model as Hugging Face transformers saves it")
    config, described = _read_json(folder / "config.json"), _read_json(folder / "tokenizer_config.json", optional=True)
    vocabulary = _read_json(folder / "vocab.json")
    separate = bool(described.get("separate_vocabs"))
    target_vocabulary = _read_json(folder / "target_vocab.json") if separate else vocabulary
    start = config["decoder_start_token_id"]
    source_rows = _rows(vocabulary, vocabulary.get(START) if separate else start, folder)
    target_rows = _rows(target_vocabulary, start, folder)
    stored = _read_weights(folder)
    generation = {**config, **_read_json(folder / "generation_config.json", optional=True)}
    search, lost = from_generation(generation, _tokens(target_vocabulary, target_rows), where=str(folder))
    biased = bool(stored.get(BIAS, torch.zeros(1)).any())
    recipe = _recipe(folder, config, described, search, biased=biased)
    weights = from_marian(recipe, stored, source_rows, target_rows, where=str(folder))
    run = Run.create(out)
    try:
        run.write_recipe(recipe)
        source = _tokenizer(folder, "source", vocabulary, source_rows)
        target = _tokenizer(folder, "target", target_vocabulary, target_rows)
        files = [(folder / f"{side}.spm").read_bytes() for side in ("source", "target")]
        same = source_rows == target_rows and files[0] == files[1]
        run.write_tokenizers(source, source if same else target)
        run.write_sizes(source_vocabulary=len(source_rows), target_vocabulary=len(target_rows))
        run.write_weights(weights)
        run.write_card(
            {
                "imported": {"from": folder.name, "format": "marian"},
                "languages": {"source": recipe.data.source_language, "target": recipe.data.target_language},
                "arch": recipe.model.arch,
                "vocabulary": {"source": len(source_rows), "target": len(target_rows)},
                "versions": {"regard": __version__, "torch": torch.__version__},
            }
        )
        run.load_model()  # reports weights that do not fit
    except BaseException:
        run.discard()
        raise
    if lost:
        log(f"not imported, because Regard has no such setting: {', '.join(lost)}")
    return run


def from_marian(
    recipe: Recipe, stored: Mapping[str, Tensor], source_rows: list[int], target_rows: list[int], *, where: str
) -> dict[str, Tensor]:
    """Convert `stored`, the weights of a Marian model, to our names and our order of dimensions and tokens.

    `source_rows` and `target_rows`: for each of our token ids, Marian's id. `where`: the folder, for error messages.
    """
    settings = transformer_settings(recipe)
    theirs = {name: tensor.float() for name, tensor in stored.items()}
    _drop_computed(theirs, settings, where)
    bias_1V = theirs.pop(BIAS, None)
    ours = to_ours(pairs(settings), theirs, stream_order(settings.width), where=where)
    for name in ("encoder.embed.tokens.weight", "embed.tokens.weight", "output.weight"):
        if name in ours:
            rows = source_rows if name.startswith("encoder.") else target_rows
            if len(ours[name]) != max(rows) + 1:
                raise RunError(
                    f"{where}: {max(rows) + 1} tokens but {len(ours[name])} embedding rows; download all files again"
                )
            ours[name] = ours[name][rows]
    if bias_1V is not None and bias_1V.any():
        ours["output.bias"] = bias_1V[0, target_rows]
    return ours


def _drop_computed(weights: dict[str, Tensor], settings: TransformerSettings, where: str) -> None:
    """Remove sinusoids and copies of tied matrices from `weights`; raise an error if they have unexpected values."""
    import torch

    from regard.layers.positional_encoding import sinusoids

    encoder, decoder = "model.encoder.embed_", "model.decoder.embed_"
    for name in (f"{encoder}positions.weight", f"{decoder}positions.weight"):
        if (rows := weights.pop(name, None)) is not None:
            expected = sinusoids(len(rows), settings.width)[:, stream_order(settings.width)]
            if (rows - expected).abs().max() > 1e-3:
                raise RunError(f'{where}: "{name}" must be the sinusoids of Marian; other positions are not supported')
    copies = [f"{encoder}tokens.weight", f"{decoder}tokens.weight", "lm_head.weight"]
    decoder_only = settings.tie_embeddings == "target"
    original = weights.get(copies[1] if decoder_only else "model.shared.weight")
    for name in copies[2:] if decoder_only else copies:
        if original is not None and not torch.equal(weights.pop(name, original), original):
            raise RunError(f'{where}: "{name}" differs from the embeddings that it is tied to; not supported')


def _read_weights(folder: Path) -> dict[str, Tensor]:
    if (path := folder / "model.safetensors").is_file():
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except Exception as error:  # safetensors raises its own untyped errors
            raise RunError(f"{path}: damaged ({error}); download it again") from None
    if (path := folder / "pytorch_model.bin").is_file():
        return read_torch_file(path)
    raise RunError(f"{folder}: has neither model.safetensors nor pytorch_model.bin; download one of them")


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a torch file (`pytorch_model.bin`) by name, with torch's restricted unpickler.

    A zip archive with compressed entries is refused: torch never writes them, and a small file could fill the memory.
    """
    import torch

    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                    problem = "compressed entries, which torch never writes; get model.safetensors instead"
                    raise RunError(f"{path}: {problem}")
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except RunError:
        raise
    except Exception as error:  # damaged and crafted files raise many types, some with messages of many lines
        raise RunError(
            f"{path}: cannot be read as a torch file of weights ({type(error).__name__}); get model.safetensors instead"
        ) from None
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights):
        raise RunError(f"{path}: is not a dictionary of tensors; get model.safetensors instead")
    for name, weight in weights.items():
        if not _is_plain(weight):
            raise RunError(
                f"{path}: {json.dumps(name)} is not a dense floating-point tensor; get model.safetensors instead"
            )
    return dict(weights)


def _is_plain(weight: object) -> bool:
    """Whether `weight` is a dense floating-point tensor on the CPU that stores every element.

    A tensor with stride 0 stores fewer elements than it has: a small file could then need a lot of memory when the
    tensor is copied.
    """
    import torch

    return (
        isinstance(weight, torch.Tensor)
        and weight.layout == torch.strided
        and weight.device.type == "cpu"
        and weight.is_floating_point()
        and weight.numel() * weight.element_size() <= weight.untyped_storage().nbytes()
    )


def _recipe(folder: Path, config: _Table, described: _Table, search: Mapping[str, Any], *, biased: bool) -> Recipe:
    """Make a recipe from a Marian model's config.json (`config`), tokenizer_config.json (`described`) and `search`.

    `search` has our search settings; `biased`: whether the output layer has a bias.
    """
    for key, wanted in FIXED.items():
        if config.get(key, wanted) != wanted:
            raise RunError(
                f"{folder}: config.json has {key} = {json.dumps(config[key])}; only {json.dumps(wanted)} is supported"
            )
    for name in ("attention_heads", "ffn_dim"):
        if config[f"encoder_{name}"] != config[f"decoder_{name}"]:
            raise RunError(f"{folder}: encoder_{name} and decoder_{name} in config.json differ, which is not supported")
    shared = config.get("share_encoder_decoder_embeddings", True)
    tied = config.get("tie_word_embeddings", True)
    model = {
        "arch": "transformer-base",
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "width": config["d_model"],
        "heads": config["encoder_attention_heads"],
        "ffn_width": config["encoder_ffn_dim"],
        "dropout": float(config.get("dropout", 0.1)),
        "activation": {"silu": "swish"}.get(config["activation_function"], config["activation_function"]),
        "tie_embeddings": "all" if shared and tied else "target" if tied else "none",
        **({"output_bias": True} if biased else {}),
    }
    languages = {f"{side}_language": described.get(f"{side}_lang") or "" for side in ("source", "target")}
    kind = read_mark(folder).get("tokenizer", "unigram")
    tokenizer = {
        "kind": "unigram" if kind == "sentencepiece" else kind,
        "vocab_size": config["vocab_size"],
        "joint": not described.get("separate_vocabs"),
    }
    table = {"model": model, "tokenizer": tokenizer, "search": search, "data": languages}
    return make_recipe(table, where=str(folder))


def _rows(vocabulary: Vocabulary, start: int | None, folder: Path) -> list[int]:
    """Marian's token ids in the order of our ids: element i is Marian's id for our token i.

    Our order is: end, unknown, start, the other tokens in Marian's order, padding. `vocabulary` has Marian's ids by
    token; `start` is Marian's id for our start token (None: the id of padding); `folder` is for error messages.
    """
    if {id for id in vocabulary.values() if isinstance(id, int)} != set(range(len(vocabulary))):
        raise RunError(
            f"{folder}: the token ids of the vocabulary do not run from 0 to {len(vocabulary) - 1}; download it again"
        )
    for token in (END, UNKNOWN, PAD_TOKEN):
        if token not in vocabulary:
            raise RunError(f'{folder}: vocab.json or target_vocab.json has no token "{token}"; download it again')
    end, unknown, padding = vocabulary[END], vocabulary[UNKNOWN], vocabulary[PAD_TOKEN]
    start = padding if start is None else start
    if start not in range(len(vocabulary)):
        raise RunError(
            f"{folder}: decoder_start_token_id = {start} in config.json is not an id of the vocabulary; correct it"
        )
    special = {end, unknown, start, padding}
    return [end, unknown, start, *(id for id in range(len(vocabulary)) if id not in special), padding]


def _tokens(vocabulary: Vocabulary, rows: list[int]) -> dict[int, str]:
    """Tokens by Marian's id, in the order of `rows` (see `_rows`), without special tokens; "<s>" becomes "<s:ID>"."""
    by_id = {id: token for token, id in vocabulary.items()}
    return {id: by_id[id] if by_id[id] != START else f"<s:{id}>" for id in rows[SOS + 1 : -1]}


def _tokenizer(folder: Path, side: str, vocabulary: Vocabulary, rows: list[int]) -> Tokenizer:
    """The source or target tokenizer (`side`) of a Marian model, with our ids; `rows`: see `_rows`.

    If Regard exported the model, the original tokenizer is restored.
    """
    path = folder / f"{side}.spm"
    if not path.is_file():
        raise RunError(f"{folder}: has no {path.name}; download it too")
    opened = load(path, "sentencepiece", tokens=list(_tokens(vocabulary, rows).values()))
    kind = read_mark(folder).get("tokenizer")
    if kind in ("bpe", "unigram"):
        ours = SubwordTokenizer(kind, False, opened.model.removesuffix(SQUEEZE_SPACES))
        if ours.tokens == opened.tokens:
            return ours
    return opened


class _Table(dict[str, Any]):
    """A dict read from the JSON file `path`; a missing key raises an error that names the file."""

    def __init__(self, path: Path, content: Mapping[str, Any]):
        super().__init__(content)
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise RunError(f'{self.path} has no "{key}"; download the file again')


def _read_json(path: Path, *, optional: bool = False) -> _Table:
    if optional and not path.is_file():
        return _Table(path, {})
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}); download it, or change its permissions") from None
    except ValueError:
        raise RunError(f"{path}: not JSON; download it again") from None
    if not isinstance(content, dict):
        raise RunError(f"{path}: not a JSON object; download it again")
    return _Table(path, content)
