"""Groups of a beam that keep out of each other's way."""

import pytest
import torch

from regard.config import SearchSettings
from regard.decoding.beam import beam_search
from regard.decoding.diverse import diverse_beam_search
from regard.decoding.forced_decoding import force
from regard.decoding.hypothesis import Tokens, keep_rows
from regard.errors import SettingsError
from regard.tasks.generation import check_search
from tests.toys import TOYS, VOCABULARY, build, sentences

SPECIAL = Tokens(2, 0, never=(2, VOCABULARY - 1))
LIMITS = torch.tensor([6, 5, 4])


@pytest.fixture(params=["transformer-small", "hran"])
def model(request):
    return build(TOYS[request.param])


@torch.inference_mode()
def search(model, memory, **options):
    return diverse_beam_search(model.step, lambda: model.start(memory), memory, LIMITS, SPECIAL, **options)


@torch.inference_mode()
def read(model):
    return model.encode(sentences([7, 4, 2]))


def test_one_group_is_a_beam_search(model):
    memory = read(model)
    with torch.inference_mode():
        expected = beam_search(model.step, model.start(memory), memory, LIMITS, SPECIAL, width=3, best=3)
    found = search(model, memory, width=3, groups=1)
    assert [[one.tokens for one in row] for row in found] == [[one.tokens for one in row] for row in expected]


def test_groups_that_do_not_mind_find_the_same(model):
    memory = read(model)
    assert search(model, memory, width=3, groups=3, strength=0.0) == search(model, memory, width=1, groups=1)


def test_groups_of_one_that_mind_much_differ_at_every_place(model):
    """Hamming diversity: at no place do two of them have the same token, but for where they end."""
    found = search(model, read(model), width=4, groups=4, strength=1e4)
    for row in found:
        assert len(row) == 4
        for place in range(6):
            there = [one.tokens[place] for one in row if len(one.tokens) > place]
            assert len(set(there)) == len(there)


def test_scores_are_the_models_own(model):
    memory = read(model)
    found = search(model, memory, width=4, groups=2, strength=1.0)
    for row, hypotheses in enumerate(found):
        assert [one.score for one in hypotheses] == sorted((one.score for one in hypotheses), reverse=True)
        ended = [one for one in hypotheses if one.ended]
        if ended:
            with torch.inference_mode():
                again = keep_rows(memory, torch.tensor([row] * len(ended)))
                forced = force(model.step, model.start(again), again, [one.tokens for one in ended], SPECIAL)
            for one, expected in zip(ended, forced, strict=True):
                assert one.score == pytest.approx(expected.score, abs=1e-4)
                assert one.log_probs == pytest.approx(expected.log_probs, abs=1e-4)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(SettingsError, match=r"is not a multiple of search\.beam_groups 2"):
        SearchSettings(beam_size=5, beam_groups=2)
    with pytest.raises(SettingsError, match=r"search\.beam_groups cannot be combined"):
        check_search(SearchSettings(beam_size=4, beam_groups=2, sample=True), 1, False)
    with pytest.raises(SettingsError, match=r"search\.beam_groups cannot be combined"):
        check_search(SearchSettings(beam_size=4, beam_groups=2), 1, True)
