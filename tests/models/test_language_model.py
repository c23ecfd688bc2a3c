"""Language models: decoders whose source is empty."""

import pytest
import torch

from regard import models
from regard.config import ModelSettings
from regard.errors import SettingsError
from regard.models.base import Seq2Seq
from regard.models.language_model import LanguageModelSettings
from regard.models.recurrent_language_model import RecurrentLanguageModel, RecurrentLanguageModelSettings
from tests.toys import VOCABULARY, close, sentences, tokens, walk

CASES: dict[str, ModelSettings] = {
    positions: LanguageModelSettings(
        layers=2, width=8, heads=2, ffn_width=16, dropout=0.0, positional_encoding=positions
    )
    for positions in ("sinusoidal", "rotary")
}
CASES |= {cell: RecurrentLanguageModelSettings(layers=2, width=8, cell=cell) for cell in ("lstm", "gru")}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def language_model(request: pytest.FixtureRequest) -> Seq2Seq:
    torch.manual_seed(0)
    return models.build(request.param, vocabulary=VOCABULARY).eval()


def test_a_language_model_steps_as_it_reads(language_model: Seq2Seq) -> None:
    source, target_BWT = sentences([1, 1, 1]), tokens(3, 2, 6)
    stepped = walk(language_model, source, target_BWT)
    for beam in range(2):
        close(stepped[:, beam], language_model(source, target_BWT[:, beam]))


def test_a_language_model_never_reads_ahead(language_model: Seq2Seq) -> None:
    source, target_BT = sentences([1]), tokens(1, 6)
    changed = target_BT.clone()
    changed[:, 3] = (changed[:, 3] + 1) % VOCABULARY
    before, after = language_model(source, target_BT), language_model(source, changed)
    close(after[:, :3], before[:, :3], 1e-6)
    assert (after[:, 3:] - before[:, 3:]).abs().max() > 1e-3


def test_a_language_model_does_not_read_its_source(language_model: Seq2Seq) -> None:
    target_BT = tokens(2, 4)
    close(language_model(sentences([5, 3]), target_BT), language_model(sentences([1, 1]), target_BT), 0)


def test_the_lstm_is_that_of_torch() -> None:
    """One layer has the outputs of `torch.nn.LSTM` with the same weights."""
    torch.manual_seed(0)
    model = RecurrentLanguageModel(RecurrentLanguageModelSettings(layers=1, width=8), VOCABULARY).eval()
    [cell] = model.decoder.cells
    theirs = torch.nn.LSTM(8, 8, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(cell.input.weight)
        theirs.bias_ih_l0.copy_(cell.input.bias)
        theirs.weight_hh_l0.copy_(cell.recurrent.weight)
        theirs.bias_hh_l0.zero_()
        target_BT = tokens(2, 5)
        states_BTD, _ = theirs(model.embed(target_BT))
        close(model(sentences([1, 1]), target_BT), model.output(states_BTD))


def test_experts_need_two_layers() -> None:
    with pytest.raises(SettingsError, match=r"set model\.layers to 2 or more"):
        RecurrentLanguageModelSettings(layers=1, experts=4)
