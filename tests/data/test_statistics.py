"""The numbers of a corpus against a count by hand, and against Python's own statistics."""

from __future__ import annotations

import statistics as reference
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import Corpus
from regard.data.pairs import Pair, read_corpus
from regard.data.statistics import measure

SHARED = Path(__file__).parents[3] / "shared" / "data"


def test_counts_by_hand() -> None:
    pairs = [
        Pair("The cat, the dog.", "Il gatto, il cane!"),
        Pair("Hi", "Ciao"),
        Pair("Hi", "Ciao"),
        Pair("Hi", "Salve"),
        Pair(" ", ""),
        Pair("one two three four five six", "« uno »"),
    ]
    found = measure(pairs)
    assert (found.pairs, found.duplicates) == (6, 1)
    assert (found.source.distinct, found.target.distinct) == (4, 5)
    assert (found.source.empty, found.target.empty) == (1, 1)
    assert found.source.vocabulary == 10  # the cat dog hi one two three four five six
    assert found.target.vocabulary == 6  # il gatto cane ciao salve uno; the guillemets are no word
    assert found.source.words.total == 4 + 1 + 1 + 1 + 0 + 6
    assert found.source.words.mean == pytest.approx(13 / 6, abs=0.01)
    assert (found.source.words.shortest, found.source.words.median, found.source.words.longest) == (0, 1, 6)
    assert {name: count for name, count in found.source.words.buckets.items() if count} == {"0": 1, "1-5": 4, "6-10": 1}
    assert found.source.characters.total == 17 + 2 + 2 + 2 + 1 + 27
    assert found.target.characters.total == 18 + 4 + 4 + 5 + 0 + 7
    assert found.ratio == pytest.approx(38 / 51, abs=1e-4)
    assert (found.ratio_p05, found.ratio_p95) == (0.26, 2.5)  # 7 / 27 and 5 / 2


def test_an_empty_corpus_has_no_numbers() -> None:
    found = measure([])
    assert found.pairs == found.duplicates == found.source.words.longest == found.ratio == 0


def test_the_last_bucket_is_open() -> None:
    found = measure([Pair("x " * 100, "y " * 101)])
    assert found.source.words.buckets["76-100"] == 1
    assert found.target.words.buckets["101+"] == 1
    assert list(found.source.words.buckets)[:3] == ["0", "1-5", "6-10"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 130), min_size=1, max_size=80))
def test_lengths_are_those_of_the_textbook(lengths: list[int]) -> None:
    words = measure([Pair("w " * length, "x") for length in lengths]).source.words
    assert words.total == sum(lengths)
    assert words.mean == pytest.approx(reference.mean(lengths), abs=0.006)
    assert words.median == reference.median_low(lengths)
    assert (words.shortest, words.longest) == (min(lengths), max(lengths))
    assert sum(words.buckets.values()) == len(lengths)
    assert sum(length <= words.p95 for length in lengths) >= 0.95 * len(lengths)
    assert sum(length < words.p95 for length in lengths) < 0.95 * len(lengths)


def test_real_captions() -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared data is not on this machine")
    corpus = Corpus(*(str(SHARED / "multi30k" / f"val.{side}") for side in ("en", "de")))
    found = measure(read_corpus(corpus))
    assert found.pairs == 1014  # the collection's own table
    # wc -w and wc -m (which counts the line ends, one a line)
    assert (found.source.words.total, found.target.words.total) == (12_167, 11_568)
    assert found.source.characters.total == 63_297 - 1014
