"""What is streamed is what the search would have found."""

import pytest
import torch

from regard.decoding.constraints import NoRepeatNgram
from regard.decoding.greedy import Sample, extend_paths, sampling, stream
from regard.decoding.hypothesis import Tokens
from tests.toys import TOYS, VOCABULARY, build, sentences

SPECIAL = Tokens(2, 0, never=(2, VOCABULARY - 1))
ARCHS = ("transformer-small", "bahdanau", "hran")


def streamed(model, memory, longest, **options):
    with torch.inference_mode():
        return tuple(stream(model.step, model.start(memory), memory, torch.tensor([longest]), SPECIAL, **options))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("longest", [1, 4, 12])
def test_streams_are_greedy_or_drawn(arch, longest):
    model, source = build(TOYS[arch]), sentences([6])
    limit = torch.tensor([longest])
    with torch.inference_mode():
        memory = model.encode(source)
        [[expected]] = extend_paths(model.step, model.start(memory), memory, limit, SPECIAL)
        choose = sampling(Sample(temperature=1.5, top_k=9), torch.tensor([7]))
        [[drawn]] = extend_paths(model.step, model.start(memory), memory, limit, SPECIAL, choose)
    assert streamed(model, memory, longest) == expected.tokens
    assert streamed(model, memory, longest, choose=choose) == drawn.tokens


def test_constraints_hold():
    model, source = build(TOYS["transformer-small"]), sentences([6])
    with torch.inference_mode():
        memory = model.encode(source)
    found = streamed(model, memory, 12, constraints=[NoRepeatNgram(1)])
    assert len(set(found)) == len(found)


def test_a_stream_leaves_gradients_as_they_were():
    """Between two tokens, the caller's own tensors may have gradients."""
    model, source = build(TOYS["transformer-small"]), sentences([6])
    with torch.inference_mode():
        memory = model.encode(source)
    for _ in stream(model.step, model.start(memory), memory, torch.tensor([3]), SPECIAL):
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
