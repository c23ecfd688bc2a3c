"""The one definition of a word."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text.words import Word, word_texts, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I am trendy", "I am trendy"),
        ("", ""),
        (" \t\n\u00a0\u3000", ""),
        ("Wait, what?!", "Wait , what ? !"),
        ("well-known (3.14)", "well - known ( 3 . 14 )"),
        # elision: the article or preposition ends after its apostrophe
        ("l'amico", "l' amico"),
        ("L’Aquila", "L’ Aquila"),
        ("C'è dell'acqua.", "C' è dell' acqua ."),
        ("un'amica d'estate", "un' amica d' estate"),
        ("Qu'est-ce que j'ai ?", "Qu' est - ce que j' ai ?"),
        ("un po' di pane", "un po' di pane"),
        # English clitics stay
        ("didn't it's I'm we've they'll he'd you're", "didn't it's I'm we've they'll he'd you're"),
        ("DON’T shouldn't've", "DON’T shouldn't've"),
        ("Maria's book", "Maria's book"),
        # quotation marks are marks
        ("'hello' he said", "' hello ' he said"),
        ("the dogs' bowl", "the dogs ' bowl"),
    ],
)
def test_words_of_a_sentence(text, expected):
    assert [word.text for word in words(text)] == expected.split()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("cafe\u0301 noir", 2),  # a combining accent stays with its letter
        ("नमस्ते दुनिया", 2),  # vowel signs and virama are marks, not letters
        ("می\u200cخواهم", 1),  # the zero-width non-joiner of Persian is inside the word
        ("你好世界。", 2),  # a run of ideographs is one word, its full stop another
        ("สวัสดี", 1),
        ("❤\ufe0f!", 2),  # a variation selector stays with its symbol
        ("\u0301", 1),  # even a mark with nothing to stand on is covered
        ("\ud800", 1),  # a lone surrogate does no harm
    ],
)
def test_scripts_and_marks(text, count):
    assert len(words(text)) == count


def test_positions():
    assert words("Ah, l'ora") == [Word("Ah", 0, 2), Word(",", 2, 3), Word("l'", 4, 6), Word("ora", 6, 9)]


@given(st.text(st.characters(codec=None), max_size=60) | st.text("abé'’ .,\u0301\u200dsmtl3_", max_size=40))
@settings(deadline=None)
def test_words_cover_every_character_that_is_not_a_space_once(text):
    found = words(text)
    covered = [position for word in found for position in range(word.start, word.end)]
    assert covered == [position for position, character in enumerate(text) if not character.isspace()]
    assert all(text[word.start : word.end] == word.text for word in found)
    assert word_texts(text) == [word.text for word in found]
