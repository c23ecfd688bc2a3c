"""Models with a mixture of experts: settings, sizes, and what a run tells about its experts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import models
from regard.cli import main
from regard.cli.info import arch_facts
from regard.config import settings_of
from regard.config.recipe import make_recipe
from regard.errors import SettingsError
from regard.layers.auxiliary import collect_auxiliary
from regard.layers.experts import MixtureOfExperts
from regard.models.base import count_active_parameters, count_parameters
from regard.training.flops import count_cost
from regard.training.metrics_log import mean_statistics
from tests.small_runs import SIZES, train_arguments, write_corpus
from tests.toys import EXPERTS, SOURCELESS, TOYS, build, sentences, tokens, toy


def names_of_experts(case: Any) -> list[str]:
    return [module.name for module in build(case).modules() if isinstance(module, MixtureOfExperts)]


def test_which_layers_have_experts() -> None:
    assert names_of_experts(TOYS["transformer-moe"]) == ["encoder.1.experts", "decoder.1.experts"]
    every_third = toy("transformer-moe", encoder_layers=7, decoder_layers=2, expert_every=3)
    assert names_of_experts(every_third) == ["encoder.2.experts", "encoder.5.experts"]
    assert names_of_experts(SOURCELESS["language model with experts"]) == ["decoder.1.experts"]
    found = {name: names_of_experts(case) for name, case in EXPERTS.items()}
    assert found.pop("experts in Luong's encoder") == ["encoder.experts"]
    assert all(names == ["encoder.experts", "decoder.experts"] for names in found.values())
    assert not names_of_experts(TOYS["transformer-small"])


@pytest.mark.parametrize("case", [TOYS["transformer-moe"], *EXPERTS.values()])
def test_every_layer_adds_its_loss_in_training_only(case: Any) -> None:
    model, source, target_BT = build(case), sentences([5, 3]), tokens(2, 4)
    for training in (True, False):
        with collect_auxiliary() as added:
            model.train(training)(source, target_BT)
        assert sorted(added.statistics) == (sorted(names_of_experts(case)) if training else [])
        assert len(added.losses) == len(added.statistics)


@pytest.mark.parametrize(
    ("arch", "changes", "message"),
    [
        ("transformer-moe", {"active_experts": 9}, "model.active_experts = 9 is more than model.experts = 8"),
        ("transformer-moe", {"active_experts": 0}, "model.active_experts must be at least 1, not 0"),
        ("transformer-moe", {"experts": -1}, "model.experts must be at least 0"),
        ("transformer-moe", {"expert_every": 5}, "model.expert_every = 5: no block has experts"),
        ("transformer-moe", {"expert_capacity": -1.0}, "model.expert_capacity must be at least 0"),
        ("transformer-lm", {"experts": 1}, "model.active_experts = 2 is more than model.experts = 1"),
        ("bahdanau", {"experts": 4}, "set model.encoder_layers to 2 or more"),
        ("seq2seq-lstm", {"experts": 4, "decoder_layers": 1}, "set model.decoder_layers to 2 or more"),
    ],
)
def test_impossible_settings_are_errors(arch: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        dataclasses.replace(settings_of(arch), **changes)


@pytest.mark.parametrize("other", [{"fsdp": True}, {"optimizer": "muon"}])
def test_divided_experts_exclude_fsdp_and_muon(other: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"train\.expert_parallel needs"):
        make_recipe({"train": {"expert_parallel": True, **other}})


def test_only_active_experts_count_as_active_and_cost_operations() -> None:
    """Twice as many experts: more parameters, as many active ones and as many FLOPs, except for the gate."""
    with torch.device("meta"):
        eight, sixteen = (
            models.build(toy("transformer-moe", experts=experts), source_vocabulary=19, target_vocabulary=19)
            for experts in (8, 16)
        )
    width, inner = 16, 32
    expert = width * inner + inner + inner * width + width
    gates = 2 * 2 * 8 * width  # two layers, two matrices each, eight more rows
    assert count_parameters(sixteen) - count_parameters(eight) == 2 * 8 * expert + gates
    assert count_active_parameters(sixteen) - count_active_parameters(eight) == gates
    assert count_parameters(eight) - count_active_parameters(eight) == 2 * 6 * expert
    for unit, flops in count_cost(eight).items():
        assert count_cost(sixteen)[unit] - flops == (2 * 8 * width if unit.endswith("token") else 0)
    plain = build(TOYS["transformer-small"])
    assert count_active_parameters(plain) == count_parameters(plain)


def test_info_tells_parameters_in_all_and_active_ones(capsys: pytest.CaptureFixture[str]) -> None:
    facts = arch_facts("transformer-moe", 8000)
    assert facts["active_parameters"] < facts["parameters"]
    assert "a mixture of experts (Shazeer et al. 2017)" in facts["about"]
    assert main(["info", "--arch", "transformer-moe"]) == 0
    assert f"active per token\t\t\t{facts['active_parameters']:,}" in capsys.readouterr().out
    assert main(["info", "--arch", "transformer-mini"]) == 0
    assert "active per token" not in capsys.readouterr().out


def test_means_of_statistics() -> None:
    lines = [{"layers": {"a": {"load": [0.2 * step, 1.0], "dropped": 0.1 * step}}} for step in range(4)]
    assert mean_statistics([*lines, {"kind": "validation"}], last=2) == {"a": {"load": [0.5, 1.0], "dropped": 0.25}}
    assert mean_statistics([{"kind": "step"}]) == {}


def test_a_run_tells_the_load_of_every_expert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_corpus(tmp_path)
    run = tmp_path / "run"
    arguments = train_arguments(tmp_path, run, "train.max_steps=6", *SIZES["transformer-moe"], arch="transformer-moe")
    assert main(arguments) == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = [line["layers"] for line in lines if line["kind"] == "step"]
    assert len(logged) == 3
    for layers in logged:
        assert list(layers) == ["encoder.1.experts", "decoder.1.experts"]
        for found in layers.values():
            assert sum(found["load"]) == pytest.approx(1, abs=1e-3)
            assert sum(found["importance"]) == pytest.approx(1, abs=1e-3)
            assert len(found["load"]) == 4
    card = json.loads((run / "card.json").read_text())
    assert card["layers"] == mean_statistics(lines)
    assert '"load"' in (run / "report.html").read_text()
    capsys.readouterr()
    assert main(["info", str(run)]) == 0
    shown = capsys.readouterr().out
    shares = card["layers"]["decoder.1.experts"]["load"]
    assert "decoder.1.experts\tload\t" + " ".join(f"{100 * share:.1f}" for share in shares) in shown
