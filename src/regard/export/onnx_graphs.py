"""The graphs of the ONNX export as torch modules, and their translation to ONNX (inputs and outputs: see onnx.py)."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from regard.export.weights import fill_heads
from regard.layers.attention import KeyValue
from regard.layers.kv_cache import KVCache
from regard.layers.positional_encoding import RotaryEncoding, SinusoidalEncoding
from regard.models import build
from regard.models.base import Network
from regard.models.transformer import Transformer
from regard.models.transformer_settings import TransformerSettings
from regard.run import Run, restore


class EncoderGraph(nn.Module):
    """Encodes the source and projects it to the cross-attention keys and values of every decoder layer."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(self, ids_BS: Tensor, mask_BS: Tensor) -> list[Tensor]:
        """Keys and values for the cross-attention of each decoder layer: key of layer 0, value of layer 0, ..."""
        encoder = self.model.encoder
        x_BSD = encoder.embed(ids_BS)
        for block in encoder.blocks:
            x_BSD = block(x_BSD, mask_BS)
        states_BSD = encoder.norm(x_BSD)
        return [tensor for block in self.model.decoder for tensor in block.cross_attention.project(states_BSD)]


class DecoderGraph(nn.Module):
    """One decoding step: takes the last token of each row and the cache, returns logits and the extended cache."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(self, token_B: Tensor, mask_BS: Tensor, memory: list[Tensor], past: list[Tensor]) -> list[Tensor]:
        """Logits of the next token, then the keys and values of `past`, each extended by those of `token_B`.

        `memory` has the outputs of `EncoderGraph`; `past` has key and value of each layer's self-attention.
        """
        place = past[0].shape[2]
        x_B1D = self.model.embed(token_B[:, None], place)
        present: list[Tensor] = []
        for layer, block in enumerate(self.model.decoder):
            two = slice(2 * layer, 2 * layer + 2)
            x_B1D, cache = block.step(x_B1D, PlainCache(*past[two]), KeyValue(*memory[two]), mask_BS)
            present += cache
        return [self.model.output(self.model.norm(x_B1D))[:, 0], *present]


class PlainCache(KVCache):
    """Key-value cache without beams (one hypothesis per row): tensors [B, H, T, head width], grown by concatenation."""

    def __init__(self, key: Tensor, value: Tensor):
        self._parts = KeyValue(key, value)
        self.length = key.shape[2]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._parts)

    def slots(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values, and the mask of cached positions that are in use: None, because all are."""
        return *self._parts, None

    def add(self, both_BW2HK: Tensor) -> PlainCache:
        """A new cache with one more token; `both_BW2HK` has the key and value (axis of size 2) of this token.

        W is the beam width, here 1; K is the head width.
        """
        new = both_BW2HK.permute(2, 0, 3, 1, 4)  # [2, B, H, 1, K]
        return PlainCache(*(torch.cat([old, one], dim=2) for old, one in zip(self._parts, new, strict=True)))


def load_transformer(run: Run, settings: TransformerSettings) -> Transformer:
    """Load the model of a run; an attention whose heads are all pruned gets one head of zeros."""
    model: Network = run.load_model()
    wanted = {name: max(settings.heads_in(name), 1) for name in settings.attentions}
    if any(settings.heads_in(name) < heads for name, heads in wanted.items()):
        weights = fill_heads(settings, dict(model.named_parameters()), wanted)
        source, target = run.tokenizers
        filled = dataclasses.replace(settings, remaining_heads=tuple(wanted.items()))
        model = build(filled, source_vocabulary=source.size, target_vocabulary=target.size).eval()
        restore(model.requires_grad_(False), weights, where=str(run.folder))
    assert isinstance(model, Transformer)
    return model


def write_graphs(model: Transformer, settings: TransformerSettings, longest: int, folder: Path) -> None:
    """Write encoder.onnx and decoder.onnx into `folder`, for sentences of up to `longest` tokens."""
    for module in model.modules():
        if isinstance(module, SinusoidalEncoding | RotaryEncoding):
            module.between(0, longest)  # compute the whole table of sinusoids: a graph cannot extend it
    batch, size, length = Dim("B"), Dim("S", max=longest), Dim("T", max=longest - 1)
    layers = settings.decoder_layers

    def empty(kind: str, places: int, axis: Dim) -> list[tuple[Tensor, dict[int, Dim]]]:
        heads = [max(settings.heads_in(f"decoder.{layer}.{kind}"), 1) for layer in range(layers) for _ in range(2)]
        return [(torch.zeros(2, count, places, settings.head_size), {0: batch, 2: axis}) for count in heads]

    # Example inputs with their dynamic axes.
    mask_BS = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    source = {
        "ids": (torch.zeros(2, 5, dtype=torch.long), {0: batch, 1: size}),
        "mask": (mask_BS, {0: batch, 1: size}),
    }
    _write_graph(folder / "encoder.onnx", EncoderGraph(model), source, _key_value_names("memory", layers))
    target = {
        "token": (torch.zeros(2, dtype=torch.long), {0: batch}),
        "mask": (torch.ones(2, 5, dtype=torch.bool), {0: batch, 1: size}),
        "memory": empty("cross", 5, size),
        "past": empty("self", 3, length),
    }
    outputs = ["logits", *_key_value_names("present", layers)]
    _write_graph(folder / "decoder.onnx", DecoderGraph(model), target, outputs)


def _key_value_names(what: str, layers: int) -> list[str]:
    return [f"{what}.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]


def _write_graph(path: Path, module: nn.Module, inputs: dict[str, Any], outputs: list[str]) -> None:
    names: list[str] = []
    for name, given in inputs.items():
        names += _key_value_names(name, len(given) // 2) if isinstance(given, list) else [name]
    with _without_messages():
        program = torch.onnx.export(
            module.eval(),
            tuple(_part(given, 0) for given in inputs.values()),
            dynamic_shapes=tuple(_part(given, 1) for given in inputs.values()),
            input_names=names,
            output_names=outputs,
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        program.save(str(path))


def _part(given: Any, part: int) -> Any:
    return [one[part] for one in given] if isinstance(given, list) else given[part]


@contextlib.contextmanager
def _without_messages() -> Iterator[None]:
    """Context manager that suppresses messages of torch's exporter about merged axis names and optional libraries."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
