"""BM25: the formula, what it was made of, and text of any kind."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import SettingsError
from regard.tasks.retrieve import bm25
from regard.tasks.retrieve.bm25 import LENGTH, SATURATION, WordIndex, terms

TEXTS = ["When do you open?", "Can I pay by card?", "Do you sell gift cards?", "Where is the shop?"]


def by_hand(texts, question):
    """Lucene's BM25 (Kamphuis et al. 2020, table 1), divided by the sum of the inverse document frequencies."""
    found = [terms(text) for text in texts]
    mean = sum(map(len, found)) / len(found)
    asked = list(dict.fromkeys(terms(question)))
    total = np.zeros(len(texts))
    rarities = 0.0
    for term in asked:
        holding = sum(term in one for one in found)
        rarity = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        rarities += rarity
        for place, one in enumerate(found):
            often = one.count(term)
            total[place] += rarity * often / (often + SATURATION * (1 - LENGTH + LENGTH * len(one) / mean))
    return total / rarities


@pytest.mark.parametrize("question", ["Can I pay by card?", "cards", "opening hours of the shop", "you you you"])
def test_scores_are_the_formula(question):
    np.testing.assert_allclose(WordIndex(TEXTS).scores(question), by_hand(TEXTS, question), rtol=1e-4)


def test_pieces_of_words_meet():
    index = WordIndex(TEXTS)
    assert index.scores("paying").argmax() == 1
    assert index.scores("opening").argmax() == 0
    assert index.scores("zebra xylophone").max() == 0


def test_unknown_words_lower_the_score():
    index = WordIndex(TEXTS)
    assert index.scores("pay by card")[1] > index.scores("pay by card zebra")[1] > 0


@given(st.text(max_size=40))
def test_what_words_add_is_the_score(question):
    index = WordIndex(TEXTS)
    for place in (1, 3):
        parts = index.explain(question, place)
        assert sum(part.weight for part in parts) == pytest.approx(float(index.scores(question)[place]), abs=1e-5)
        assert all(part.weight >= 0 for part in parts)


def test_scripts_without_spaces_meet_by_characters():
    index = WordIndex(["営業時間は何時ですか", "カードで払えますか", "ร้านเปิดกี่โมง", "متى تفتحون؟", "Можно картой?"])
    for place, question in enumerate(["営業時間を教えて", "カード払い", "เปิดกี่โมง", "تفتحون", "картой"]):
        assert index.scores(question).argmax() == place


def test_punctuation_says_nothing_and_symbols_do():
    assert terms("?! ... —") == []
    assert "😀" in terms("a 😀")
    index = WordIndex(["Do you take €?", "Do you like 😀?", "?"])
    assert index.scores("€").argmax() == 0
    assert index.scores("😀").argmax() == 1
    assert index.scores("???").max() == 0


@pytest.mark.parametrize("texts", [["?"], ["", "!"], ["one"], ["the", "the"]])
def test_hardly_any_text(texts):
    scores = WordIndex(texts).scores("the one")
    assert scores.shape == (len(texts),)
    assert np.isfinite(scores).all()


def test_twenty_thousand_words():
    scores = WordIndex(TEXTS).scores("pay by card " + "word " * 20_000)
    assert scores.argmax() == 1


def test_without_bm25s_the_extra_is_named(monkeypatch):
    def fail(name):
        raise ImportError(name)

    monkeypatch.setattr(bm25, "import_module", fail)
    with pytest.raises(SettingsError, match=r'pip install "regard\[retrieve\]"'):
        WordIndex(["a text"])
