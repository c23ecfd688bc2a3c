"""The laws that every encoder keeps when it reads frames or pictures in place of tokens (layers/inputs.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard import models
from regard.config import ModelSettings
from regard.errors import ModelError, SettingsError
from regard.layers.hooks import attention_hooks, trace
from regard.layers.inputs import PICTURE_SIZES, Frames
from regard.models import presets
from regard.models.base import Network, Seq2Seq, TaggerModel
from regard.training.flops import count_cost
from tests.reviews import toy_classifier
from tests.tagged import toy_tagger
from tests.toys import TOYS, close, tokens, toy, walk

WORDS = 19
FRAMES = {"frame_width": 5}
PATCHES = dict(zip(PICTURE_SIZES, (3, 12, 8, 4), strict=False))
CONVOLUTIONS = PATCHES | {"convolutions": 2}
INPUTS = {"frames": FRAMES, "patches": PATCHES, "convolutions": CONVOLUTIONS}

SEQ2SEQ = ("transformer-small", "seq2seq-lstm", "bahdanau", "luong-dot", "deep-att", "show-attend-tell")
ENCODERS = {arch: TOYS[arch] for arch in SEQ2SEQ}
ENCODERS |= {
    "learned positions": toy("transformer-small", positional_encoding="learned", max_positions=32),
    "rotary positions": toy("transformer-tiny", positional_encoding="rotary"),
    "concatenated positions": toy("transformer-small", position_mode="concatenate"),
    "han": toy_classifier("han"),
    "transformer-classifier": toy_classifier("transformer-classifier"),
    "text-encoder": replace(presets("text-encoder")["text-encoder"], width=16, ffn_width=24, encoder_layers=1),
    "bigru-crf": toy_tagger("bigru-crf"),
    "transformer-crf": toy_tagger("transformer-crf"),
}
AXES = {"seq2seq": "BS", "classifier": "BUS", "tagger": "BTS", "text-encoder": "BS"}
OTHERS = {"seq2seq": {"target_vocabulary": WORDS}, "classifier": {"labels": 3}, "tagger": {"labels": 3}}

CASES = {
    f"{encoder}, {name}": (settings, sizes)
    for encoder, settings in ENCODERS.items()
    for name, sizes in INPUTS.items()
    if name == "frames" or settings.kind != "tagger"
}
every_encoder_and_input = pytest.mark.parametrize(("settings", "sizes"), CASES.values(), ids=CASES.keys())


def build(settings: ModelSettings, sizes: dict[str, int], seed: int = 0) -> Network:
    """A model in evaluation mode, with noise on all weights."""
    torch.default_generator.manual_seed(seed)
    model = models.build(settings, **sizes, **OTHERS.get(settings.kind, {})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def inputs(model: Network, settings: ModelSettings, rows: int = 3) -> SimpleNamespace:
    """Random values in the form that the model reads; the second row of frames has only four frames."""
    axes = AXES[settings.kind]
    source = model.reads.example(axes, (rows, 2, 6) if axes == "BUS" else (rows, 6, 1)[: len(axes)])
    setattr(source, f"ids_{axes}", torch.randn_like(getattr(source, f"ids_{axes}")))
    if isinstance(model.reads, Frames):
        getattr(source, f"mask_{axes}").view(rows, -1)[1, 4:] = False
    return source


def parts(source: SimpleNamespace) -> Iterator[tuple[str, Tensor]]:
    yield from vars(source).items()


def outputs(model: Network, source: SimpleNamespace) -> Tensor:
    """What the model computes, zero on padding."""
    if isinstance(model, Seq2Seq):
        return model(source, torch.arange(4).expand(len(source.ids_BS), 4))
    found = model(source)
    return found * source.mask_BTS[:, :, :1] if isinstance(model, TaggerModel) else found


@every_encoder_and_input
@torch.no_grad()
def test_a_row_alone_equals_its_row_in_a_batch(settings: ModelSettings, sizes: dict[str, int]) -> None:
    model = build(settings, sizes)
    source = inputs(model, settings)
    together = outputs(model, source)
    for row in range(3):
        alone = SimpleNamespace(**{name: part[row : row + 1] for name, part in parts(source)})
        close(outputs(model, alone)[0], together[row])


@every_encoder_and_input
@torch.no_grad()
def test_the_input_matters_and_padding_does_not(settings: ModelSettings, sizes: dict[str, int]) -> None:
    model = build(settings, sizes)
    source, axes = inputs(model, settings), AXES[settings.kind]
    before = outputs(model, source)
    if sizes is FRAMES:
        padded = getattr(source, f"ids_{axes}")
        padded.view(3, -1, 5)[1, 4:] += 1.0
        close(outputs(model, source), before)
    setattr(source, f"ids_{axes}", getattr(source, f"ids_{axes}") + torch.randn(getattr(source, f"ids_{axes}").shape))
    assert (outputs(model, source) - before).abs().flatten(1).amax(1).min() > 1e-4


@every_encoder_and_input
def test_every_weight_learns(settings: ModelSettings, sizes: dict[str, int]) -> None:
    model = build(settings, sizes)
    source = inputs(model, settings)
    loss = (outputs(model.train(), source) ** 2).sum()
    if isinstance(model, TaggerModel):
        target = torch.zeros(source.mask_BTS.shape[:2], dtype=torch.long)
        loss = model.crf.negative_log_likelihood(model(source), target, source.mask_BTS[:, :, 0]).sum()
    elif settings.kind == "text-encoder":
        loss = outputs(model, source)[:, 0].sum()
    loss.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


@every_encoder_and_input
@torch.no_grad()
def test_saved_loaded_and_recorded_scores_are_equal(settings: ModelSettings, sizes: Any, tmp_path: Path) -> None:
    model, other = build(settings, sizes), build(settings, sizes, seed=1)
    source = inputs(model, settings)
    expected = outputs(model, source)
    save_file({name: weight.detach() for name, weight in model.named_parameters()}, tmp_path / "weights.safetensors")
    stored = load_file(tmp_path / "weights.safetensors")
    for name, weight in other.named_parameters():
        weight.copy_(stored.pop(name))
    assert not stored
    assert torch.equal(outputs(other, source), expected)
    with trace(model) as tape:
        close(outputs(model, source), expected)
    assert set(tape) == set(attention_hooks(model))


@pytest.mark.parametrize("sizes", INPUTS.values(), ids=INPUTS.keys())
@pytest.mark.parametrize("arch", ["transformer-small", "bahdanau", "luong-dot", "deep-att", "show-attend-tell"])
@torch.no_grad()
def test_steps_equal_forward(arch: str, sizes: dict[str, int]) -> None:
    model = build(TOYS[arch], sizes)
    source, target_BT = inputs(model, TOYS[arch]), tokens(3, 5)
    close(walk(model, source, target_BT[:, None])[:, 0], model(source, target_BT))


@every_encoder_and_input
def test_operations_can_be_counted(settings: ModelSettings, sizes: dict[str, int]) -> None:
    cost = count_cost(build(settings, sizes))
    assert min(cost.values()) >= 0
    assert max(cost.values()) > 0


@torch.no_grad()
def test_patches_are_read_row_by_row_and_their_places_matter() -> None:
    model = build(replace(ENCODERS["transformer-classifier"], pool="mean"), PATCHES)
    patches, pixels = model.encoder.embed.input, torch.zeros(1, 3, 12, 8)
    blank = patches(pixels)
    pixels[:, :, 4:8, 4:8] = 1.0  # second row, second column of 3 x 2 patches
    changed = (patches(pixels) - blank).abs().amax(-1)[0] > 0
    assert changed.tolist() == [False, False, False, True, False, False]
    source = SimpleNamespace(ids_BUS=pixels[:, None], mask_BUS=torch.ones(1, 1, 6, dtype=torch.bool))
    moved = SimpleNamespace(ids_BUS=pixels.roll(4, -2)[:, None], mask_BUS=source.mask_BUS)
    assert (model(source) - model(moved)).abs().max() > 1e-4


def test_wrong_sizes_are_one_clear_line() -> None:
    with pytest.raises(SettingsError, match="reads only tokens"):
        models.build(toy("convs2s"), frame_width=4, target_vocabulary=WORDS)
    with pytest.raises(SettingsError, match="source_vocabulary is missing"):
        models.build(toy("transformer-small"), target_vocabulary=WORDS)
    with pytest.raises(ModelError, match="missing patch_size"):
        models.build(toy_classifier("han"), picture_channels=1, picture_height=8, picture_width=8, labels=2)
    with pytest.raises(ModelError, match="cannot be divided into patches of 5"):
        models.build(toy_classifier("han"), **(PATCHES | {"patch_size": 5}), labels=2)
    sizes = dict(zip(PICTURE_SIZES, (3, 12, 12, 6, 1), strict=True))
    with pytest.raises(ModelError, match="patch size of 2, 4, 8"):
        models.build(toy_classifier("han"), **sizes, labels=2)
    with pytest.raises(ModelError, match="not the patches of a picture"):
        models.build(toy_tagger("bigru-crf"), **PATCHES, labels=2)
