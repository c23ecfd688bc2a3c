"""Costs of steps: counted FLOPs against `training/flops.py`, bytes and activations against counts by hand."""

import json

import pytest
import torch
from torch import nn

from regard import models
from regard.layers.operators import count_operations
from regard.models import presets, settings_of, size_names
from regard.training.cost import StepCost, count_decoding, count_decoding_step, count_phases, count_training
from regard.training.flops import count_cost, pair_amounts
from regard.training.operator_ledger import footprint, keep_ledger
from regard.training.roofline import MachineRoofs, interpolate, measure_roofs, predict, report_costs
from tests.toys import TOYS, toy

WORDS = 50
MACHINE = MachineRoofs(1, 100.0, ((1, 10.0), (100, 100.0)), ((10, 20.0), (1000, 2.0)), 0.5, 1.0)


def empty(settings):
    with torch.device("meta"):
        return models.build(settings, **dict.fromkeys(size_names(settings), WORDS))


@pytest.mark.parametrize("arch", presets("seq2seq"))
def test_training_costs_three_forward_passes(arch):
    """The backward pass is two products per product; the fused kernel computes scores once more (5 products, not 4)."""
    model = empty(toy(arch))
    expected = count_cost(model).training(**pair_amounts(3, 7, 5))
    assert count_training(model, 3, 7, 5).flops == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("arch", presets("seq2seq"))
def test_decoding_a_sentence_costs_what_its_steps_cost(arch):
    model = empty(toy(arch))
    steps = [count_decoding_step(model, 2, 3, position, 7) for position in (2, 3)]
    whole = [count_decoding(model, 2, 3, 7, length).flops for length in (1, 2, 3)]
    assert whole[1] - whole[0] == pytest.approx(steps[0].flops)
    assert whole[2] - whole[1] == pytest.approx(steps[1].flops)


@pytest.mark.parametrize("arch", ["han", "transformer-classifier", "bigru-crf", "transformer-crf", "text-encoder"])
def test_models_that_write_no_text_have_costs_too(arch):
    settings = settings_of(arch)
    with torch.device("meta"):
        model = models.build(settings, **dict.fromkeys(size_names(settings), WORDS))
    training, one, many = count_phases(model, 5, 2)
    assert 2.5 * one.flops * 2 < training.flops < 3.5 * one.flops * 2
    assert many.flops == pytest.approx(32 * one.flops)


def test_bytes_and_activations_of_a_linear_layer():
    model = nn.Linear(4, 6, bias=False, device="meta")
    with keep_ledger(model) as ledger, torch.enable_grad(), ledger.watch_activations():
        model(torch.empty(5, 4, device="meta")).sum().backward()
    product = next(call for call in ledger.calls() if call.name == "mm")
    assert (product.flops, product.bytes, product.rows) == (2 * 5 * 4 * 6, 4 * (5 * 4 + 4 * 6 + 5 * 6), 4)
    assert ledger.activations == 4 * 5 * 4  # the input, for the gradient of the weights


def test_an_expanded_axis_is_stored_once():
    assert footprint(torch.empty(3, 1).expand(3, 100)) == 12


def test_sequential_operations_are_the_longest_chain():
    x = torch.ones(2)
    assert count_operations(lambda: (x + 1) * (x + 2)).sequential == 2
    assert count_operations(lambda: x.exp().exp().exp() + x).sequential == 4
    assert count_operations(lambda: x.view(1, 2).t()).sequential == 0


def test_decoding_moves_more_bytes_per_operation_than_training():
    """The memory wall: one token reads all weights for one product each."""
    model = empty(TOYS["transformer-small"])
    assert count_decoding_step(model, 1, 1, 4, 8).intensity < count_training(model, 8, 8, 8).intensity


def test_prediction_of_a_step_by_hand():
    model = nn.Linear(4, 6, bias=False, device="meta")
    with keep_ledger(model) as ledger:
        model(torch.empty(5, 4, device="meta"))
    product = tuple(call for call in ledger.calls() if call.flops)
    found = predict(StepCost("prediction", 1, 1, product, 0, 24), MACHINE)
    assert found.compute == pytest.approx(240 / interpolate(MACHINE.products, 4))
    assert found.launch == 0.5
    assert found.roofline == pytest.approx(max(240 / 100, 296 / 2))
    assert found.seconds == pytest.approx(found.compute + found.memory + found.launch)


def test_interpolation_is_on_logarithmic_axes():
    assert interpolate(MACHINE.products, 10) == pytest.approx(10**1.5)
    assert interpolate(MACHINE.products, 1000) == 100.0
    assert interpolate(MACHINE.products, 0.1) == 10.0


def test_a_report_of_this_machine_is_plain_data():
    costs = count_phases(empty(TOYS["transformer-tiny"]), 4, 2)
    report = report_costs(costs, measure_roofs())
    assert json.loads(json.dumps(report))["phases"][0]["prediction"]["seconds"] > 0
    assert [phase["kind"] for phase in report["phases"]] == ["training", *["decoding"] * 4, "sentence"]
