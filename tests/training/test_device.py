"""Devices, precisions and layouts; the loss of a batch is the sum of what processes make of its rows."""

import dataclasses
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard import models
from regard.config import TrainSettings
from regard.data.batches import make_batch
from regard.errors import SettingsError
from regard.layers.dropout import dropout_rows
from regard.models import presets, settings_of
from regard.tasks.translate.training import TranslateTrainUnit
from regard.training.device import autocast, choose_device, gather, key_biases, parallelize, scatter
from regard.training.distributed import ProcessGroup
from regard.training.loss import smoothed_cross_entropy
from tests.toys import close

VOCABULARY = 40
CPU = torch.device("cpu")


def small(arch):
    settings = presets("seq2seq")[arch]
    sizes = {"heads": 2, "ffn_width": 24, "embedding_width": 16, "encoder_layers": 3, "decoder_layers": 3}
    sizes["expert_capacity"] = 0  # which tokens are dropped depends on what the processes tell each other
    known = {name: size for name, size in sizes.items() if hasattr(settings, name)}
    settings = dataclasses.replace(settings, width=16, dropout=0.3, **known)
    torch.manual_seed(3)
    return models.build(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY).train()


def batch_of(rows, seed=0):
    chance = np.random.default_rng(seed)
    side = lambda: chance.integers(4, VOCABULARY - 1, chance.integers(2, 9)).tolist()  # noqa: E731
    return make_batch([(side(), side()) for _ in range(rows)], VOCABULARY - 1, VOCABULARY - 1)


def task(**settings):
    """What computes the loss, without data."""
    found = TranslateTrainUnit.__new__(TranslateTrainUnit)
    found.recipe = SimpleNamespace(train=TrainSettings(**settings))
    return found


def gradients(model, task, batch, parts):
    """Loss and gradients of a batch that so many processes share, summed as they would sum them."""
    model.zero_grad()
    total = 0.0
    for rank in range(parts):
        mine, rows = task.rows(batch, rank, parts) if parts > 1 else (batch, None)
        weight = rows.weight if rows else 1.0
        torch.manual_seed(11)
        with dropout_rows(rows):
            loss = task.loss(model, mine)
        (loss.smoothed * weight).backward()
        total += weight * float(loss.plain)
    return total, torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("arch", presets("seq2seq"))
@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_rows_on_several_processes_sum_up_to_the_batch(arch, r_drop):
    model, batch = small(arch), batch_of(7)
    whole, expected = gradients(model, task(r_drop=r_drop), batch, 1)
    for parts in (2, 3, 9):  # with 9, two processes have no row and only take part
        loss, found = gradients(model, task(r_drop=r_drop), batch, parts)
        assert loss == pytest.approx(whole, rel=1e-5)
        assert (found - expected).norm() < 1e-5 * expected.norm()


def test_a_part_of_a_batch_keeps_the_padding_and_counts_its_own_tokens():
    batch = batch_of(5)
    parts = [task().rows(batch, rank, 2) for rank in range(2)]
    assert [part.source.ids_BS.shape[1] for part, _ in parts] == [batch.source.ids_BS.shape[1]] * 2
    assert sum(part.target_tokens for part, _ in parts) == batch.target_tokens
    assert sum(part.source_tokens for part, _ in parts) == batch.source_tokens
    assert [rows.index_R.tolist() for _, rows in parts] == [[0, 2, 4], [1, 3]]


@pytest.mark.parametrize("arch", presets("seq2seq"))
def test_every_architecture_learns_in_bfloat16(arch):
    model, batch = small(arch), batch_of(6)
    plain, expected = gradients(model, task(), batch, 1)
    with autocast(TrainSettings(precision="bfloat16"), CPU):
        low, found = gradients(model, task(), batch, 1)
    assert low == pytest.approx(plain, rel=0.01)
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
    assert (found - expected).norm() < 0.2 * expected.norm()  # processors with bfloat16 of their own round more often


def test_the_loss_keeps_its_sums_in_full_precision_under_autocast():
    """8 bits of mantissa would make an error of 1 in 256 of each probability; the products alone make far less."""
    torch.manual_seed(0)
    output = torch.nn.Linear(64, 500)
    states, target = torch.randn(700, 64), torch.randint(500, (700,))
    exact = smoothed_cross_entropy(output, states, target, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        low = smoothed_cross_entropy(output, states, target, 0.1)
    assert low.plain.dtype == torch.float64
    assert float(low.plain) == pytest.approx(float(exact.plain), rel=3e-4)


def test_auto_means_float32_on_a_cpu():
    assert isinstance(autocast(TrainSettings(), CPU), nullcontext)
    assert isinstance(autocast(TrainSettings(precision="float32"), CPU), nullcontext)
    assert isinstance(autocast(TrainSettings(precision="bfloat16"), CPU), torch.autocast)


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_a_gpu_that_is_not_there():
    assert choose_device(TrainSettings(), 0) == CPU
    with pytest.raises(SettingsError, match="no GPU here"):
        choose_device(TrainSettings(device="cuda"), 0)


def test_more_processes_than_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(SettingsError, match="--nproc-per-node 2"):
        choose_device(TrainSettings(device="cuda"), 2)


def test_sharding_works_on_whole_matrices_no_more():
    with pytest.raises(SettingsError, match=r'train.fsdp needs train.optimizer = "adam"'):
        TrainSettings(fsdp=True, optimizer="muon")


def test_key_biases_are_those_without_effect():
    model, batch = small("transformer-tiny"), batch_of(4)
    model.eval()
    before = model(batch.source, batch.target_input_BT)
    with torch.no_grad():
        found = list(key_biases(model))
        for bias, heard in found:
            bias.add_(torch.randn_like(bias) * (1 - heard))
    close(model(batch.source, batch.target_input_BT), before, 1e-4)
    assert len(found) == 9  # three layers with one attention, three with two
    assert all((1 - heard).sum() == 16 for _, heard in found)


def test_rotary_keys_have_a_bias_that_counts():
    model = models.build(
        dataclasses.replace(
            settings_of("transformer-tiny"), width=16, heads=2, ffn_width=8, positional_encoding="rotary"
        ),
        source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY,
    )  # fmt: skip
    assert len(list(key_biases(model))) == 4  # the cross-attention of four layers, which rotary positions leave alone


def test_one_process_has_the_model_as_it_is():
    model = small("transformer-tiny")
    layout = parallelize(model, task().loss, TrainSettings(), ProcessGroup())
    batch = batch_of(3)
    torch.manual_seed(5)
    expected = task().loss(model, batch)
    torch.manual_seed(5)
    with layout.summing(True):
        assert torch.equal(layout.loss(batch).smoothed, expected.smoothed)
    layout.loss(batch).smoothed.backward()
    layout.zero_key_bias_gradients()
    assert all(bias.grad[heard == 0].abs().max() == 0 for bias, heard in key_biases(model))
    weight = model.output.weight
    assert gather(weight) is weight
    assert scatter(weight, weight) is weight
