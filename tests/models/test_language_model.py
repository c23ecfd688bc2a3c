"""The language model: a decoder whose source is empty."""

import pytest
import torch

from regard.models.language_model import LanguageModel, LanguageModelSettings
from tests.toys import VOCABULARY, close, sentences, tokens, walk


@pytest.fixture(params=["sinusoidal", "rotary"])
def language_model(request: pytest.FixtureRequest) -> LanguageModel:
    settings = LanguageModelSettings(
        layers=2, width=8, heads=2, ffn_width=16, dropout=0.0, positional_encoding=request.param
    )
    torch.manual_seed(0)
    return LanguageModel(settings, VOCABULARY).eval()


def test_a_language_model_steps_as_it_reads(language_model: LanguageModel) -> None:
    source, target_BWT = sentences([1, 1, 1]), tokens(3, 2, 6)
    stepped = walk(language_model, source, target_BWT)
    for beam in range(2):
        close(stepped[:, beam], language_model(source, target_BWT[:, beam]))


def test_a_language_model_never_reads_ahead(language_model: LanguageModel) -> None:
    source, target_BT = sentences([1]), tokens(1, 6)
    changed = target_BT.clone()
    changed[:, 3] = (changed[:, 3] + 1) % VOCABULARY
    before, after = language_model(source, target_BT), language_model(source, changed)
    close(after[:, :3], before[:, :3], 1e-6)
    assert (after[:, 3:] - before[:, 3:]).abs().max() > 1e-3


def test_a_language_model_does_not_read_its_source(language_model: LanguageModel) -> None:
    target_BT = tokens(2, 4)
    close(language_model(sentences([5, 3]), target_BT), language_model(sentences([1, 1]), target_BT), 0)
