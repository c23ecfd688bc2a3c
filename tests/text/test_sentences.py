"""Where a long text is cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text.words import cut, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said: "No." Then he left.', ['He said: "No."', "Then he left."]),
        ("It costs 3.50 euros, e.g. in Rome.", ["It costs 3.50 euros, e.g. in Rome."]),
        ("猫が好き。犬も好き！", ["猫が好き。", "犬も好き！"]),
        ("「はい。」と言った。次。", ["「はい。」と言った。", "次。"]),
        ("मैं यहाँ हूँ। वह वहाँ है।तुम?", ["मैं यहाँ हूँ।", "वह वहाँ है।", "तुम?"]),
        ("هل أنت هنا؟ نعم. ہاں۔ میں", ["هل أنت هنا؟", "نعم.", "ہاں۔", "میں"]),
        ("네. 나도.", ["네.", "나도."]),
        ("მე აქ ვარ. ის იქ არის.", ["მე აქ ვარ.", "ის იქ არის."]),
        ("Это дом, т. е. жильё. Он там.", ["Это дом, т. е. жильё.", "Он там."]),
        ("  ", []),
    ],
)
def test_sentences_end_where_people_end_them(text, sentences):
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    "text",
    [
        "Am 3. Mai kam Dr. Müller.",
        "Freitag, 3. Mai, oder vom 4. bis 5. Juni.",
        "Es war das 19. Jahrhundert, der II. Weltkrieg, am 1. 9. 1939.",
        "1. Erster Punkt",
        "No. 5 is alive, see Fig. 3.",
        "J. R. R. Tolkien met J.-P. Sartre and the U.S. Army.",
        "Qui sta “Mr. Rossi” (Sig. Bianchi).",
        "т. е. это дом.",
    ],
)
def test_a_period_that_belongs_to_a_word_ends_nothing(text):
    assert split_sentences(text) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "It was in 1990.|Then he left.",
        "It costs 3.50.|Come at 10:30.|Read page 12.|Do it.",
        "I am 12.|My sister is 5.|We play.",
        "Did he come?|No.|He stayed.",
        "I don't.|You do.|Well...|No!|What did Dr?|Yes.",
    ],
)
def test_a_number_or_a_short_word_may_end_a_sentence(text):
    assert split_sentences(text.replace("|", " ")) == text.split("|")


def test_whole_sentences_are_kept_together_as_long_as_they_fit():
    assert cut("Aa. Bb. Cc. Dd.", lambda text: len(text) <= 7) == ["Aa. Bb.", "Cc. Dd."]


@settings(deadline=None)
@given(st.text(alphabet="ab .!?A3।。", max_size=200), st.integers(3, 30))
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
