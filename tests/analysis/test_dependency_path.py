"""Gradient reach and sequential operations of encoders, against Jacobians that are computed in full."""

import json

import pytest
import torch

from regard.analysis.dependency_path import gradient_reach
from regard.errors import ModelError, SettingsError
from regard.layers.hooks import listen_to_states
from tests.toys import TOYS, VARIANTS, build, sentences

LENGTH = 24


@pytest.fixture(scope="module")
def found():
    return {arch: gradient_reach(build(settings), length=LENGTH) for arch, settings in TOYS.items()}


def test_every_encoder_decoder_has_a_reach(found):
    for result in found.values():
        assert json.loads(json.dumps(result))["gradient"] == result["gradient"]
        assert len(result["distances"]) == len(result["gradient"]) == LENGTH
        assert result["gradient"][0] == 1.0
        assert result["steps"][-1][0] == LENGTH - 1


def test_operations_between_tokens_grow_in_recurrent_encoders_only(found):
    assert found["transformer-small"]["steps_exponent"] == 0.0
    assert found["bahdanau"]["steps_exponent"] > 0.8


def test_a_gru_adds_six_operators_per_token(found):
    """Product, sum, sigmoid, bias, weighted sum and interpolation wait for each other; see layers/rnn_cells.py."""
    (near, before), (far, after) = found["bahdanau"]["steps"][-2:]
    assert (after - before) / (far - near) == 6


def test_restricted_attention_has_an_end():
    """Three layers with two neighbors on each side reach six tokens, and not one further."""
    result = gradient_reach(build(VARIANTS["window of 5"]), length=LENGTH)
    assert min(result["gradient"][:7]) > 0
    assert max(result["gradient"][7:]) == 0


def test_the_estimate_agrees_with_the_whole_jacobian():
    model = build(TOYS["bahdanau"])
    source = sentences([LENGTH])

    def states(x_SD):
        with listen_to_states(model, "encoder.embed", lambda *_: x_SD[None]):
            return model.encode(source).states_BSD[0]

    width = model.encoder.embed.tokens.embedding_dim
    jacobian = torch.autograd.functional.jacobian(states, torch.randn(LENGTH, width))  # [T, D, S, E]
    norms_TS = jacobian.square().sum((1, 3))
    exact = [(torch.diagonal(norms_TS, k).mean() + torch.diagonal(norms_TS, -k).mean()) / 2 for k in (0, 4)]
    estimate = gradient_reach(model, length=LENGTH, probes=256)["gradient"][4]
    assert estimate == pytest.approx((exact[1] / exact[0]).sqrt().item(), rel=0.3)  # other texts, random directions


def test_the_model_and_the_random_numbers_stay_as_they_were():
    model = build(TOYS["luong-dot"]).train()
    before = torch.get_rng_state()
    assert gradient_reach(model, length=8) == gradient_reach(model, length=8)
    assert model.training
    assert torch.get_rng_state().equal(before)


def test_a_name_builds_a_new_network():
    assert gradient_reach("hran", length=8, probes=2)["name"] == "hran"


def test_bad_requests_get_one_line():
    with pytest.raises(ModelError, match="not an encoder-decoder"):
        gradient_reach("han")
    with pytest.raises(SettingsError, match="at least 4"):
        gradient_reach("hran", length=2)
