"""Where marks go, on sentences whose alignment is known."""

import re

import pytest

from regard.data.builtin import read_phrases
from regard.documents import parse
from regard.text.words import words
from tests.documents.answers import Links, Said


@pytest.fixture(scope="module")
def phrases():
    return read_phrases()[:300]


def test_a_mark_is_around_exactly_the_words_that_render_its_word(phrases):
    """For every word whose rendering stands together and renders nothing else."""
    checked = 0
    for phrase in phrases:
        source, target = words(phrase.source), words(phrase.target)
        alignment = Links(
            tuple(word.text for word in source), tuple(word.text for word in target), tuple(phrase.alignment)
        )
        for place, word in enumerate(source):
            there = sorted(t for s, t in phrase.alignment if s == place)
            alone = all(s == place for s, t in phrase.alignment if t in there)
            if not there or not alone or there != list(range(there[0], there[-1] + 1)) or len(source) == 1:
                continue
            marked = f"{phrase.source[: word.start]}<b>{word.text}</b>{phrase.source[word.end :]}"
            document = parse("html", marked)
            made = document.rebuild([Said(phrase.target, alignment)])
            text, start, end = phrase.target, target[there[0]].start, target[there[-1]].end
            assert made == f"{text[:start]}<b>{text[start:end]}</b>{text[end:]}"
            checked += 1
    assert checked > 1000


def test_without_an_alignment_marks_go_by_their_share(phrases):
    for phrase in phrases[:50]:
        count = len(words(phrase.source))
        first = words(phrase.source)[0]
        document = parse("html", f"<b>{first.text}</b>{phrase.source[first.end :]}")
        made = document.rebuild([Said(phrase.target)])
        assert re.sub(r"</?b>", "", made) == phrase.target
        if count > 1:
            assert made.startswith("<b>")
