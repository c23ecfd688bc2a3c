"""The plan for documents, and the arithmetic that it estimates with."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard import models, registry
from regard.config import ModelSettings
from regard.config.recipe import make_recipe
from regard.models.han import HANSettings
from regard.models.pooled_encoders import TransformerClassifierSettings
from regard.tasks.classify.documents import DocumentFacts
from regard.tasks.classify.plan import make_document_plan
from regard.tasks.classify.settings import ClassifySettings
from regard.training.flops import count_cost
from regard.training.plan import merge
from tests.reviews import CASES, LABELS, VOCABULARY

IMDB = DocumentFacts(24_000, 231.0, 590, 4.6, 2, 0.5, False)
BANKING = DocumentFacts(9_000, 12.0, 28, 4.4, 77, 0.0035, False)


def resolve(data, given=None):
    given = {"data": {"task": "classify"}} | (given or {})
    return make_recipe(merge(make_document_plan(data, given), given))


@dataclass(frozen=True)
class PlainSettings(ModelSettings):
    """An architecture of a plugin, without dropout."""

    kind: ClassVar[str] = "classifier"
    network: ClassVar[str] = "Plain"
    arch: str = "plain"


PRESETS = {"plain": PlainSettings()}


def test_settings_that_an_architecture_lacks_are_not_planned(monkeypatch):
    monkeypatch.setitem(registry.ARCHITECTURES, "plain", __name__)
    assert resolve(IMDB, {"model": {"arch": "plain"}}).model == PlainSettings()


def test_reviews_and_short_questions_get_what_suits_them():
    reviews, questions = resolve(IMDB), resolve(BANKING)
    assert isinstance(reviews.model, HANSettings)
    assert reviews.tokenizer.kind == "word"
    assert 20_000 <= reviews.tokenizer.vocab_size <= 40_000
    assert reviews.task.max_tokens > questions.task.max_tokens
    assert reviews.train.batch_tokens > questions.train.batch_tokens
    assert (reviews.train.metric, questions.train.metric) == ("accuracy", "f1")
    assert questions.task.class_weights == "balanced"


def test_several_labels_and_text_without_spaces_are_noticed():
    data = DocumentFacts(5_000, 8.0, 20, 40.0, 5, 0.2, True)
    recipe = resolve(data)
    assert recipe.task.multi_label
    assert recipe.tokenizer.kind == "bpe"


def test_what_was_said_stands():
    given = {
        "model": {"arch": "transformer-classifier"},
        "classify": {"max_tokens": 64},
        "train": {"batch_tokens": 999},
    }
    recipe = resolve(IMDB, given)
    assert isinstance(recipe.model, TransformerClassifierSettings)
    assert recipe.task.max_tokens == 64
    assert recipe.train.batch_tokens == 999
    names = [choice.name for choice in make_document_plan(IMDB, given)]
    assert len(names) == len(set(names))
    assert not {"model.arch", "classify.max_tokens", "train.batch_tokens"} & set(names)
    assert all(choice.reason for choice in make_document_plan(IMDB, {}))


def test_settings_are_checked():
    for bad in ({"max_tokens": 10}, {"word_dropout": 1.0}, {"temperature": 0.0}, {"threshold": 1.0}):
        with pytest.raises(Exception, match=r"classify\."):
            ClassifySettings(**bad)


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_forward_equals_pytorchs_count(settings):
    """Of a batch without padding: attention over words is computed with it."""
    model = models.build(settings, vocabulary=VOCABULARY, labels=LABELS).eval()
    documents, segments, size = 3, 4, 6
    ids = torch.randint(VOCABULARY, (documents, segments, size))
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:  # the fused kernel is not counted
        model(SimpleNamespace(ids_BUS=ids, mask_BUS=torch.ones_like(ids, dtype=torch.bool)))
    pairs = documents * segments * size**2
    counted = count_cost(model).forward(
        document=documents, sentence=documents * segments, token=ids.numel(), pair=pairs
    )
    assert counted == pytest.approx(counter.get_total_flops(), rel=1e-9)
