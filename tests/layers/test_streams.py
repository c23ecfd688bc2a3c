"""Streams: names in order, states as they are, replacements that count, and no trace left behind."""

import pytest
import torch

from regard.errors import ModelError
from regard.layers.hooks import listen_to_states, state_hooks, trace_states
from tests.toys import TOYS, build, close, sentences, tokens, walk


@pytest.mark.parametrize("arch", sorted(TOYS))
def test_every_architecture_shows_its_states(arch: str) -> None:
    """What the encoder hands on is the last thing seen of it; looking changes nothing."""
    model, source, target_BT = build(TOYS[arch]), sentences([5, 3]), tokens(2, 4)
    plain = model(source, target_BT)
    with trace_states(model) as states:
        watched = model(source, target_BT)
    assert torch.equal(plain, watched)
    assert [name for name in states if name.endswith(("embed", "top"))] == [
        "encoder.embed", "encoder.top", "decoder.embed", "decoder.top",
    ]  # fmt: skip
    assert torch.equal(states["encoder.top"], model.encode(source).states_BSD[:, :5])  # ByteNet adds columns
    assert torch.equal(model.output(states["decoder.top"]), plain)
    assert all(state.shape[:2] == ((2, 5) if name.startswith("encoder") else (2, 4)) for name, state in states.items())
    assert not any(stream.listeners for stream in state_hooks(model))


def test_states_can_be_replaced() -> None:
    """An embedding of zeros is what the model then reads; the side that was not named stays as it was."""
    model, source, target_BT = build(TOYS["transformer-tiny"]), sentences([5]), tokens(1, 4)
    plain = model(source, target_BT)
    with (
        listen_to_states(model, "encoder.embed", lambda name, x: torch.zeros_like(x)),
        trace_states(model) as states,
    ):
        other = model(source, target_BT)
    assert not states["encoder.embed"].any()
    assert states["decoder.embed"].any()
    assert not torch.allclose(plain, other)


def test_replacements_keep_their_shape() -> None:
    """States of another length are refused by name."""
    model = build(TOYS["bahdanau"])
    with (
        listen_to_states(model, "encoder.embed", lambda name, x: x[:, :-1]),
        pytest.raises(ModelError, match=r"encoder\.embed: a listener returned states of shape"),
    ):
        model(sentences([5]), tokens(1, 4))


@pytest.mark.parametrize("arch", sorted(TOYS))
def test_a_listener_acts_in_step_as_in_forward(arch: str) -> None:
    """States of the decoder that are changed alike at every token give the same scores, one by one or all at once."""
    model, source, target_BT = build(TOYS[arch]), sentences([5, 3]), tokens(2, 4)
    plain = model(source, target_BT)
    with trace_states(model, "decoder.*") as states:
        model(source, target_BT)
    for place in states:
        with listen_to_states(model, place, lambda name, x: 0.5 * x + 0.1):
            close(walk(model, source, target_BT[:, None])[:, 0], changed := model(source, target_BT), 1e-4)
        assert not torch.allclose(changed, plain)


def test_states_of_a_step_are_seen() -> None:
    """One state per hypothesis."""
    model, source = build(TOYS["transformer-tiny"]), sentences([5, 3])
    memory = model.encode(source)
    with trace_states(model, "decoder.*") as states:
        model.step(tokens(2, 1), model.start(memory), memory)
    assert {"decoder.embed", "decoder.0", "decoder.top"} <= states.keys()
    assert all(state.shape[:2] == (2, 1) for state in states.values())
