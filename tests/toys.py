"""Every preset at toy size, sentences to feed it, and the few moves that a search makes with a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard import models
from regard.config import ModelSettings
from regard.models import presets
from regard.models.base import Seq2Seq, Source, Tree
from regard.models.bytenet import ByteNetSettings
from regard.models.convs2s import ConvS2SSettings
from regard.models.deep_att import DeepAttSettings
from regard.models.hran import HRANSettings
from regard.models.show_attend_tell import ShowAttendTellSettings
from regard.models.transformer_settings import TransformerSettings

VOCABULARY = 19
MARKER = HRANSettings.turn_token_id  # to HRAN, a token that closes a turn; to the others, any token


def toy(arch: str, **changes: Any) -> ModelSettings:
    """A preset in small: wired like the large one, with enough layers for each kind of layer to be there."""
    preset = presets("seq2seq")[arch]
    if isinstance(preset, TransformerSettings):
        width = 4 * preset.heads
        small = dataclasses.replace(preset, encoder_layers=3, decoder_layers=2, width=width, ffn_width=2 * width)
    elif isinstance(preset, HRANSettings):
        small = dataclasses.replace(preset, width=16, embedding_width=16)
    elif isinstance(preset, ConvS2SSettings):
        small = dataclasses.replace(
            preset, encoder_layers=3, decoder_layers=2, width=16, embedding_width=12, max_positions=64
        )
    elif isinstance(preset, ByteNetSettings):
        small = dataclasses.replace(preset, encoder_layers=4, decoder_layers=4, width=20, dilations=(1, 2, 4))
    elif isinstance(preset, DeepAttSettings):
        small = dataclasses.replace(preset, encoder_layers=3, decoder_layers=3, width=16, embedding_width=12)
    elif isinstance(preset, ShowAttendTellSettings):
        small = dataclasses.replace(preset, width=16, embedding_width=12)
    else:
        small = dataclasses.replace(
            preset,
            encoder_layers=min(preset.encoder_layers, 4),
            decoder_layers=min(preset.decoder_layers, 4),
            width=16,
            embedding_width=16 if preset.tie_embeddings == "target" else 12,
        )
    return dataclasses.replace(small, **changes)


TOYS = {arch: toy(arch) for arch in presets("seq2seq")}
SMALL_DECODERS: dict[str, dict[str, Any]] = {"transformer-lm": {"heads": 4, "ffn_width": 32}, "lstm-lm": {}}
SOURCELESS = {
    arch: dataclasses.replace(preset, layers=2, width=16, **SMALL_DECODERS[arch])
    for arch, preset in presets("decoder").items()
}
SOURCELESS |= {
    "language model with experts": dataclasses.replace(SOURCELESS["transformer-lm"], experts=4, active_experts=2),
    "GRU language model with residual connections": dataclasses.replace(
        SOURCELESS["lstm-lm"], layers=3, cell="gru", residual_from_layer=2
    ),
    "LSTM language model with experts": dataclasses.replace(SOURCELESS["lstm-lm"], experts=4, expert_width=8),
}
"""Models that write without a source."""

VARIANTS = {
    "learned positions": toy("transformer-small", positional_encoding="learned", max_positions=32),
    "rotary positions": toy("transformer-small", positional_encoding="rotary"),
    "no positions": toy("transformer-small", positional_encoding="none"),
    "concatenated positions": toy("transformer-small", position_mode="concatenate"),
    "window of 5": toy("transformer-small", attention_window=5),
    "SwiGLU, norm before": toy("transformer-small", activation="swiglu", norm="pre"),
    "three experts in every block, SwiGLU": toy("transformer-moe", experts=3, expert_every=1, activation="swiglu"),
    "GELU, heads of 6, untied": toy("transformer-small", activation="gelu", head_width=6, tie_embeddings="none"),
}
"""Options of the Transformer that no preset takes."""

EXPERTS = {
    "experts between LSTM layers": toy("seq2seq-lstm", experts=4, expert_width=8),
    "experts below the top layer of GNMT": toy("gnmt", experts=4, expert_width=8),
    "experts in Luong's encoder": toy("luong-dot", experts=2, expert_width=8),
}
"""Recurrent models with experts, which no preset has."""

CONVOLUTIONS = {
    "layers of several widths and kernels": toy(
        "convs2s", encoder_groups=((1, 8, 5), (2, 12, 1)), decoder_groups=((2, 8, 3), (1, 20, 1)), output_width=10
    ),
    "kernel of 5, tied": toy("convs2s", kernel=5, tie_embeddings="all"),
    "kernel of 5, six more columns": toy("bytenet", kernel=5, length_ratio=1.0, length_extra=6),
}
"""Options of the convolutional models that no preset takes."""


VOCABULARIES = {"seq2seq": ("source_vocabulary", "target_vocabulary"), "decoder": ("vocabulary",)}
"""Sizes that the constructors of each kind of model take."""


def sizes(settings: ModelSettings, words: int = VOCABULARY) -> dict[str, int]:
    """What a model is built with beside its settings."""
    return dict.fromkeys(VOCABULARIES[settings.kind], words)


def build(settings: ModelSettings, seed: int = 0) -> Seq2Seq:
    """A model in evaluation mode; noise on all weights, so that no bias is zero and no norm an identity."""
    torch.default_generator.manual_seed(seed)
    model = models.build(settings, **sizes(settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


class Sentences(NamedTuple):
    """The source side of a batch."""

    ids_BS: Tensor
    mask_BS: Tensor


def sentences(lengths: Sequence[int]) -> Sentences:
    """Random sentences of these lengths. The padding holds random tokens too: nobody may read it."""
    size = max(lengths)
    mask_BS = torch.arange(size) < torch.tensor(lengths)[:, None]
    return Sentences(tokens(len(lengths), size), mask_BS)


def tokens(*shape: int) -> Tensor:
    """Random token ids."""
    return torch.randint(VOCABULARY, shape)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Assert that two tensors agree everywhere. (`torch.testing` takes seconds to import.)"""
    assert actual.shape == expected.shape
    gap = (actual - expected).abs().max().item()
    assert gap <= tolerance, f"differ by {gap:.1e}, more than {tolerance:.0e}"


def map_tree(change: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """The same tree with every tensor changed: all that a search may do to a state or a memory."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: map_tree(change, item) for key, item in tree.items()}
    items = [map_tree(change, item) for item in tree]
    return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)


def walk(model: Seq2Seq, source: Source, target_BWT: Tensor) -> Tensor:
    """Logits [B, W, T, V] by `step`, W hypotheses a sentence side by side."""
    memory = model.encode(source)
    width = target_BWT.shape[1]
    state = map_tree(lambda x: x.repeat_interleave(width, dim=1), model.start(memory))
    logits = []
    for token_BW in target_BWT.unbind(-1):
        logits_BWV, state = model.step(token_BW, state, memory)
        logits.append(logits_BWV)
    return torch.stack(logits, dim=2)


def check_gradients(model: Seq2Seq) -> None:
    """Assert that the gradient of every weight is that of finite differences, in double precision, with padding."""
    model, source, target_BT = model.double(), sentences([4, 2]), tokens(2, 3)

    def loss() -> Tensor:
        return F.cross_entropy(model(source, target_BT).flatten(0, 1), target_BT.flatten())

    loss().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        direction = torch.randn_like(weight)
        slope = (weight.grad * direction).sum().item()
        assert slope == pytest.approx(difference(loss, weight, direction), rel=1e-6, abs=1e-9), name


@torch.no_grad()
def difference(loss: Callable[[], Tensor], weight: Tensor, direction: Tensor, step: float = 1e-5) -> float:
    """The slope of the loss along a direction. (`gradcheck` does the same, and imports for seconds.)"""
    weight.add_(step * direction)
    above = loss()
    weight.sub_(2 * step * direction)
    below = loss()
    weight.add_(step * direction)
    return (above - below).item() / (2 * step)


@torch.no_grad()
def step_operations(model: Seq2Seq, source: Source, steps: Sequence[int]) -> list[int]:
    """FLOPs of these steps of a greedy search (the first is 1), as PyTorch counts them."""
    memory = model.requires_grad_(False).encode(source)  # the counter's hooks need gradients, or weights without
    state, token_BW, counts = model.start(memory), tokens(len(source.ids_BS), 1), []
    for number in range(1, max(steps) + 1):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            logits_BWV, state = model.step(token_BW, state, memory)
        token_BW = logits_BWV.argmax(-1)
        if number in steps:
            counts.append(counter.get_total_flops())
    return counts
