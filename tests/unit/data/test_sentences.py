"""Where a long text is cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.sentences import cut, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said: "No." Then he left.', ['He said: "No."', "Then he left."]),
        ("It costs 3.50 euros, e.g. in Rome.", ["It costs 3.50 euros, e.g. in Rome."]),
        ("猫が好き。犬も好き！", ["猫が好き。", "犬も好き！"]),
        ("  ", []),
    ],
)
def test_sentences_end_where_people_end_them(text, sentences):
    assert split_sentences(text) == sentences


def test_whole_sentences_are_kept_together_as_long_as_they_fit():
    assert cut("Aa. Bb. Cc. Dd.", lambda text: len(text) <= 7) == ["Aa. Bb.", "Cc. Dd."]


@settings(deadline=None)
@given(st.text(alphabet="ab .!?A", max_size=200), st.integers(3, 30))
def test_nothing_is_lost_and_all_fits_that_can(text, limit):
    pieces = cut(text, lambda piece: len(piece) <= limit)
    assert "".join(pieces).split() == "".join(pieces).split()
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(piece) <= limit or " " not in piece or piece == text for piece in pieces)


def test_sentences_are_joined_only_as_far_as_is_usual():
    text = "One two three. Four five six. Seven eight nine ten."
    fits, together = (lambda text, most=most: len(text.split()) <= most for most in (50, 6))
    assert cut(text, fits) == [text]
    assert cut(text, fits, together) == ["One two three. Four five six.", "Seven eight nine ten."]
    long = "One sentence of more words than is usual stays whole."
    assert cut(long, fits, together) == [long]


def test_a_word_that_does_not_fit_is_cut():
    pieces = cut("a" * 100, lambda text: len(text) <= 30)
    assert "".join(pieces) == "a" * 100
    assert max(map(len, pieces)) <= 30
