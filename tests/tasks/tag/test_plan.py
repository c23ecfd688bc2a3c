"""The plan and the arithmetic of taggers."""

import dataclasses

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.config.recipe import make_recipe
from regard.models import presets
from regard.tasks.tag.data import SentenceFacts
from regard.tasks.tag.training import make_tag_plan
from regard.training.flops import count_cost
from regard.training.plan import merge
from tests.tagged import CASES, LABELS, build, sentences

CHUNKS = SentenceFacts(
    sentences=8000, words=23.7, distinct=18_000, word_length=4.6, characters=80, labels=22, scheme="BIO"
)


def plan(data: SentenceFacts, given: dict | None = None) -> dict:
    return {choice.name: choice.value for choice in make_tag_plan(data, given or {})}


def test_the_plan_follows_the_data():
    found = plan(CHUNKS)
    assert found["train.metric"] == "f1"
    assert found["tokenizer.vocab_size"] == 85
    assert found["model.word_hash_rows"] == 32_768
    assert found["train.batch_tokens"] == 1024
    small = plan(dataclasses.replace(CHUNKS, sentences=200, distinct=900, scheme="plain"))
    assert small["train.metric"] == "accuracy"
    assert small["model.word_hash_rows"] == 1024
    assert small["model.width"] < found["model.width"]
    assert small["train.batch_tokens"] < found["train.batch_tokens"]


def test_what_was_said_stays():
    given = {"model": {"arch": "transformer-crf"}, "train": {"batch_tokens": 999}}
    found = plan(CHUNKS, given)
    assert not {"model.arch", "train.batch_tokens", "model.width"} & found.keys()
    assert found["train.optimizer"] == "muon"
    assert "train.optimizer" not in plan(CHUNKS)


@pytest.mark.parametrize("arch", presets("tagger"))
def test_the_plan_is_a_recipe(arch):
    given = {"data": {"task": "tag"}, "model": {"arch": arch}}
    table = merge(make_tag_plan(CHUNKS, given), given)
    recipe = make_recipe(table)
    assert recipe.model.arch == arch
    assert recipe.train.label_smoothing == 0.0


@pytest.mark.parametrize("arch", presets("tagger"))
def test_arithmetic_is_counted_as_torch_counts_it(arch):
    """All words have four pieces and none comes twice, so nothing is saved; the chain is left out on both sides."""
    model = build(CASES[arch])
    batch = sentences([[4] * 6] * 3)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:  # the fused kernel is not counted
        model(batch)
    counted = count_cost(model).forward(piece=18 * 4, word=18, pair=3 * 36) - 18 * 2 * LABELS**2
    assert counter.get_total_flops() == pytest.approx(counted, rel=0.02)
