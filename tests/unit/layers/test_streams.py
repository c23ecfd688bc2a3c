"""Streams: names in order, states as they are, replacements that count, and no trace left behind."""

import pytest
import torch

from regard.errors import ModelError
from regard.layers.streams import listen_to_states, streams, trace_states
from tests.toys import TOYS, build, sentences, tokens


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
    assert torch.equal(states["encoder.top"], model.encode(source).states_BSD)
    assert torch.equal(model.output(states["decoder.top"]), plain)
    assert all(state.shape[:2] == ((2, 5) if name.startswith("encoder") else (2, 4)) for name, state in states.items())
    assert not any(stream.listeners for stream in streams(model))


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
        pytest.raises(ModelError, match=r"encoder\.embed: replaced states must keep the shape"),
    ):
        model(sentences([5]), tokens(1, 4))
