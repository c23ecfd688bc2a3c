"""The masked language model: the laws that every reader of text keeps, and the encoder that others start from."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from regard import models
from regard.layers.hooks import attention_hooks, listen, trace
from regard.models import presets
from regard.models.masked_language_model import MaskedEncoderSettings
from regard.training.flops import count_cost
from tests.toys import VOCABULARY, Sentences, close, sentences

CASES = {
    positions: MaskedEncoderSettings(encoder_layers=2, width=8, heads=2, ffn_width=16, positional_encoding=positions)
    for positions in ("rotary", "sinusoidal")
}
every_case = pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
LENGTHS = (6, 1, 4)


def build(settings, seed=0):
    torch.manual_seed(seed)
    model = models.build(settings, vocabulary=VOCABULARY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def chosen(source):
    """The first and the last real token of every row."""
    places = torch.zeros_like(source.mask_BS)
    places[:, 0] = True
    places[torch.arange(len(LENGTHS)), source.mask_BS.sum(1) - 1] = True
    return places


@every_case
@torch.no_grad()
def test_only_the_chosen_positions_are_scored(settings):
    model, source = build(settings), sentences(LENGTHS)
    assert model(source, chosen(source)).shape == (5, VOCABULARY)
    everywhere = model(source, source.mask_BS)
    close(everywhere[chosen(source)[source.mask_BS]], model(source, chosen(source)))
    assert model(source, torch.zeros_like(source.mask_BS)).shape == (0, VOCABULARY)


@every_case
@torch.no_grad()
def test_padding_and_company_change_nothing(settings):
    model, source = build(settings), sentences(LENGTHS)
    together = model(source, source.mask_BS)
    padded = Sentences(F.pad(source.ids_BS, (0, 4), value=3), F.pad(source.mask_BS, (0, 4)))
    close(model(padded, padded.mask_BS), together)
    alone = [
        model(Sentences(source.ids_BS[row : row + 1, :length], source.mask_BS[row : row + 1, :length]), mask)
        for row, length in enumerate(LENGTHS)
        for mask in [source.mask_BS[row : row + 1, :length]]
    ]
    close(torch.cat(alone), together)


@every_case
@torch.no_grad()
def test_it_reads_both_sides(settings):
    model, source = build(settings), sentences([5])
    middle = torch.zeros_like(source.mask_BS)
    middle[0, 2] = True
    before = model(source, middle)
    for place in (0, 4):
        other = source.ids_BS.clone()
        other[0, place] = (other[0, place] + 1) % VOCABULARY
        assert (model(Sentences(other, source.mask_BS), middle) - before).abs().max() > 1e-4


@every_case
@torch.no_grad()
def test_saving_and_loading_leaves_the_scores_alone(settings, tmp_path):
    model, other, source = build(settings), build(settings, seed=1), sentences(LENGTHS)
    save_file({name: weight.detach() for name, weight in model.named_parameters()}, tmp_path / "weights.safetensors")
    stored = load_file(tmp_path / "weights.safetensors")
    for name, weight in other.named_parameters():
        weight.copy_(stored.pop(name))
    assert not stored
    assert torch.equal(other(source, source.mask_BS), model(source, source.mask_BS))


@every_case
@torch.no_grad()
def test_attention_can_be_recorded_and_replaced(settings):
    model, source = build(settings), sentences(LENGTHS)
    unseen = model(source, source.mask_BS)
    with trace(model) as tape:
        close(model(source, source.mask_BS), unseen)
    assert list(tape) == list(attention_hooks(model)) == ["encoder.0.self", "encoder.1.self"]
    with listen(model, "*", lambda name, weights: torch.flip(weights, (1,))):
        assert (model(source, source.mask_BS) - unseen).abs().max() > 1e-5


@every_case
def test_every_weight_learns(settings):
    model, source = build(settings).train(), sentences(LENGTHS)
    places = chosen(source)
    F.cross_entropy(model(source, places), source.ids_BS[places]).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.any(), name


def test_the_embeddings_are_the_output_and_its_cost_is_per_predicted_token():
    model = build(CASES["rotary"])
    assert model.output.weight is model.encoder.embed.tokens.weight
    cost = count_cost(model)
    assert cost["predicted"] == 2 * 8 * 8 + 2 * 8 * VOCABULARY  # a multiplication and an addition for each weight
    assert cost["token"] == 2 * 2 * (4 * 8 * 8 + 2 * 8 * 16)


@pytest.mark.parametrize("arch", ["transformer-classifier", "text-encoder"])
def test_others_have_an_encoder_with_the_same_names(arch):
    [kind] = {"classifier", "text-encoder"} & {presets()[arch].kind}
    sizes = {"labels": 2} if kind == "classifier" else {}
    shape = {"encoder_layers": 2, "width": 8, "heads": 2, "ffn_width": 16, "positional_encoding": "rotary"}
    own = type(presets()[arch])(arch, **shape)
    other = models.build(own, vocabulary=VOCABULARY, **sizes)
    names = [
        {name for name, _ in model.named_parameters() if name.startswith("encoder.")}
        for model in (build(CASES["rotary"]), other)
    ]
    assert names[0] == names[1]
