"""The search in the words of `generate`: what means the same is kept, and the rest is told."""

from __future__ import annotations

from typing import Any

import pytest

from regard.config import SearchSettings
from regard.errors import RunError
from regard.export.marian import from_generation, to_generation
from tests.export.runs import tokenizer

TARGET = tokenizer("bpe", "both")
TOKENS = dict(enumerate(TARGET.tokens[3:-1], 3))


def read(**said: Any) -> tuple[dict[str, Any], list[str]]:
    """What is left of their words, without what changes nothing."""
    search, lost = from_generation(said, TOKENS, where="here")
    plain = {"beam_size": 1, "length_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0, "suppress_tokens": []}
    return {name: value for name, value in search.items() if plain.get(name) != value}, lost


@pytest.mark.parametrize(
    "search",
    [
        {},
        {"stop": "exact"},
        {"stop": "exact", "beam_size": 1},
        {"length_penalty": 0.0},
        {"length_penalty": -0.5, "stop": "beam-full"},
        {"no_repeat_ngram_size": 3, "min_length": 1},
        {"min_length": 7},
        {"repetition_penalty": 1.3},
        {"suppress_tokens": (TARGET.token(70), TARGET.token(9))},
    ],
)
def test_there_and_back(search):
    said, lost = to_generation(SearchSettings(**search), TARGET)
    back, unknown = from_generation(said, TOKENS, where="here")
    assert SearchSettings(**back | {"suppress_tokens": tuple(back["suppress_tokens"])}) == SearchSettings(**search)
    assert lost == unknown == []


@pytest.mark.parametrize(
    ("said", "search"),
    [
        ({}, {}),
        ({"num_beams": None, "length_penalty": None, "early_stopping": None, "min_length": None}, {}),
        ({"num_beams": 4, "length_penalty": 0.0, "early_stopping": True},
         {"beam_size": 4, "length_penalty": 0.0, "stop": "beam-full"}),
        ({"num_beams": 4, "length_penalty": 0.0}, {"beam_size": 4, "length_penalty": 0.0, "stop": "exact"}),
        ({"num_beams": 4}, {"beam_size": 4}),
        ({"min_length": 1}, {}),  # the start token is one
        ({"min_length": 9, "min_new_tokens": 5}, {"min_length": 5}),  # as theirs: the latter wins
        ({"bad_words_ids": [[TARGET.pad], [70]], "suppress_tokens": [1, 70, 9]},
         {"suppress_tokens": [TARGET.token(70), TARGET.token(9)]}),
    ],
)  # fmt: skip
def test_what_they_say_in_our_words(said, search):
    assert read(**said) == (search, [])


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ({"num_beams": 4, "early_stopping": False}, ["early_stopping = false"]),
        ({"repetition_penalty": 1.2}, ["repetition_penalty = 1.2"]),  # greedy: theirs is of logits
        ({"num_beams": 4, "repetition_penalty": 1.2, "renormalize_logits": True}, ["repetition_penalty = 1.2"]),
        ({"num_beams": 4, "repetition_penalty": 0.8}, ["repetition_penalty = 0.8"]),
        ({"do_sample": True, "num_beam_groups": 2}, ["do_sample = true", "num_beam_groups = 2"]),
        ({"bad_words_ids": [[5, 6]]}, ["bad_words_ids = [[5, 6]]"]),
    ],
)
def test_what_we_cannot_say(said, lost):
    search, found = read(**said)
    assert found == lost
    assert search.keys() <= {"beam_size"}


@pytest.mark.parametrize(
    ("search", "lost"),
    [
        ({"length_penalty_form": "gnmt"}, ['search.length_penalty_form = "gnmt"']),
        ({"length_penalty_form": "gnmt", "length_penalty": 0.0}, []),  # the two forms are one
        ({"coverage_penalty": 0.2, "beam_groups": 5}, ["search.coverage_penalty = 0.2", "search.beam_groups = 5"]),
        ({"repetition_penalty": 1.2, "beam_size": 1}, ["search.repetition_penalty = 1.2"]),
    ],
)
def test_what_they_cannot_say(search, lost):
    said, found = to_generation(SearchSettings(**search), TARGET)
    assert found == lost
    assert "repetition_penalty" not in said


@pytest.mark.parametrize(
    "said",
    [{"num_beams": "4"}, {"length_penalty": [1]}, {"min_length": True}, {"bad_words_ids": [7]}, {"suppress_tokens": 7}],
)
def test_values_of_the_wrong_kind_are_told(said):
    with pytest.raises(RunError, match=r"^here: "):
        read(**said)
