"""The encoder of questions: the laws that every reader of text keeps."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard import models
from regard.cli import main
from regard.layers.hooks import attention_hooks, trace
from regard.models import presets
from regard.models.transformer_settings import TextEncoderSettings
from tests.toys import close

VOCABULARY = 17
CASES = {
    "one layer": TextEncoderSettings(
        encoder_layers=1, positional_encoding="sinusoidal", pool="attention", width=16, ffn_width=24, vector_size=12
    ),
    "dense": TextEncoderSettings(width=16, vector_size=12),
    "mean, rotary": TextEncoderSettings(
        encoder_layers=2, width=16, ffn_width=24, pool="mean", positional_encoding="rotary", norm="post", vector_size=12
    ),
}
every_case = pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())


class Texts(NamedTuple):
    """A batch."""

    ids_BS: Tensor
    mask_BS: Tensor


def texts(*lengths):
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Texts(torch.randint(VOCABULARY, mask.shape), mask)


def build(settings):
    torch.manual_seed(0)
    return models.build(settings, vocabulary=VOCABULARY).eval()


def test_every_preset_builds():
    for settings in presets("text-encoder").values():
        assert build(settings).output.out_features == settings.vector_size


@every_case
@torch.no_grad()
def test_vectors_have_length_one(settings):
    vectors = build(settings)(texts(5, 1, 3))
    assert vectors.shape == (3, 12)
    close(vectors.norm(dim=-1), torch.ones(3))


@every_case
@torch.no_grad()
def test_padding_and_company_change_nothing(settings):
    model, batch = build(settings), texts(5, 1, 3)
    together = model(batch)
    padded = Texts(F.pad(batch.ids_BS, (0, 4), value=3), F.pad(batch.mask_BS, (0, 4)))
    close(model(padded), together)
    for row, length in enumerate((5, 1, 3)):
        alone = Texts(batch.ids_BS[row : row + 1, :length], batch.mask_BS[row : row + 1, :length])
        close(model(alone)[0], together[row])


@every_case
def test_every_weight_learns(settings):
    model, batch = build(settings).train(), texts(5, 1, 3)
    (model(batch) * torch.randn(3, 12)).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name


@every_case
@torch.no_grad()
def test_looking_changes_nothing(settings):
    model, batch = build(settings), texts(4, 2)
    unseen = model(batch)
    with trace(model) as tape:
        close(model(batch), unseen)
    assert set(tape) == set(attention_hooks(model))
    close(tape["pool"].weights_BHTS.sum(-1).flatten(), torch.ones(2))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.arch=text-encoder", 'model.arch = "text-encoder" is not for data.task = "translate"; choose from'),
        ("tokenizer.joint=false", "needs one vocabulary for source and target: set tokenizer.joint = true"),
    ],
)
def test_translation_refuses_a_model_that_does_not_fit(tmp_path, capsys, setting, message):
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    for file in files:
        file.write_text("a b\n" * 20)
    arguments = ["train", "--source", str(files[0]), "--target", str(files[1]), "--out", str(tmp_path / "run")]
    assert main([*arguments, "--set", setting]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
