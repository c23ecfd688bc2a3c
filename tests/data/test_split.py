"""No sentence in two parts, nothing lost, sizes as asked, the same seed the same split."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from regard.config import Corpus
from regard.data.pairs import Pair, read_corpus
from regard.data.split import PARTS, Split, normalize, plan_split
from regard.errors import CorpusError, SettingsError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def parts_of(split: Split, pairs: list[Pair]) -> dict[str, list[Pair]]:
    parts: dict[str, list[Pair]] = {name: [] for name in PARTS}
    for name, pair in split.parts_of(pairs):
        parts[name].append(pair)
    return parts


def assert_no_sentence_in_two_parts(split: Split, pairs: list[Pair]) -> None:
    homes = defaultdict(set)
    for name, pair in split.parts_of(pairs):
        for side in pair:
            if normalize(side):
                homes[normalize(side)].add(name)
    assert all(len(names) == 1 for names in homes.values())


def count_components(pairs: list[Pair]) -> int:
    """By flooding: slow, and written in another way than the code under test."""
    by_sentence = defaultdict(list)
    for number, pair in enumerate(pairs):
        for side in pair:
            if normalize(side):
                by_sentence[normalize(side)].append(number)
    unseen, count = set(range(len(pairs))), 0
    while unseen:
        count += 1
        wave = [unseen.pop()]
        while wave:
            near = {other for side in pairs[wave.pop()] for other in by_sentence.get(normalize(side), ())} & unseen
            unseen -= near
            wave.extend(near)
    return count


sentences = st.sampled_from(["", " ", *(f"{word} {number}" for word in ("Hi", "hi", "ho") for number in range(12))])


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.builds(Pair, sentences, sentences), min_size=1, max_size=60),
    st.integers(0, 20) | st.floats(0, 0.4),
    st.integers(0, 20) | st.floats(0, 0.4),
    st.integers(0, 5),
)
def test_split_property(pairs: list[Pair], valid: int | float, test: int | float, seed: int) -> None:
    try:
        split = plan_split(pairs, valid, test, seed)
    except (SettingsError, CorpusError):
        reject()  # asked for more than there is; told in the tests below
    assert split.components == count_components(pairs)
    assert_no_sentence_in_two_parts(split, pairs)
    assert [pair for _, pair in split.parts_of(pairs)] == pairs
    assert sum(split.sizes.values()) == len(pairs) == sum(split.wanted.values())
    for name in ("valid", "test"):
        assert split.sizes[name] <= split.wanted[name]
        assert split.wanted[name] - split.sizes[name] < split.largest or split.sizes["train"] == 0
    assert plan_split(iter(pairs), valid, test, seed) == split


def test_single_pairs_give_exact_sizes() -> None:
    pairs = [Pair(f"source {number}", f"target {number}") for number in range(1000)]
    split = plan_split(pairs, 100, 0.05)
    assert split.sizes == split.wanted == {"train": 850, "valid": 100, "test": 50}
    assert (split.components, split.largest) == (1000, 1)
    other = plan_split(pairs, 100, 0.05, seed=2)
    assert other.parts != split.parts
    assert other.sizes == split.sizes


def test_pairs_hang_together_through_others() -> None:
    pairs = [
        Pair("Hi", "Hallo"),
        Pair("Hello", "hallo "),
        Pair("HELLO", "Guten Tag"),
        Pair("Guten  tag", "x"),  # the same sentence on the other side
        Pair("", "leer"),
        Pair("", "nichts"),  # an empty side connects nothing
        Pair("Cafe\u0301", "a"),
        Pair("caf\u00e9", "b"),
    ]
    split = plan_split(pairs, 1, 1)
    assert (split.components, split.largest) == (4, 4)
    assert split.sizes == {"train": 6, "valid": 1, "test": 1}
    assert set(split.parts[:4]) == {0}


def test_one_knot_cannot_fill_a_part() -> None:
    knot = [Pair("Yes.", f"so {number}") for number in range(90)]
    single = [Pair(f"source {number}", f"target {number}") for number in range(300)]
    for seed in range(20):
        split = plan_split([*knot, *single], 100, 0, seed)
        assert split.sizes["valid"] == 100
        assert set(split.parts[:90]) == {0}


def test_larger_groups_are_taken_where_smaller_do_not_suffice() -> None:
    pairs = [Pair(f"source {number // 5}", f"target {number}") for number in range(100)]
    split = plan_split(pairs, 10, 7)
    assert split.sizes == {"train": 85, "valid": 10, "test": 5}
    assert split.wanted == {"train": 83, "valid": 10, "test": 7}


def test_the_parts_are_drawn_from_everywhere() -> None:
    pairs = [Pair(f"source {number}", f"target {number}") for number in range(10_000)]
    places = [number for number, part in enumerate(plan_split(pairs, 1000, 0).parts) if part == 1]
    # The mean place of a fair draw of 1000 from 0..9999 is 4999.5 with a standard error of 87.
    assert abs(sum(places) / 1000 - 4999.5) < 4 * 87


def test_what_cannot_be_done_is_told() -> None:
    knot = [Pair("Yes.", f"so {number}") for number in range(9)]
    with pytest.raises(CorpusError) as caught:
        plan_split(knot, 2, 0, where="a.tsv")
    knotted = "9 of 9 pairs share sentences and must stay together"
    advice = "clean the corpus, or ask for more pairs, so that such a group fits (--valid or data.valid_size)"
    assert str(caught.value) == f"a.tsv: no pairs for valid: {knotted}; {advice}"
    fewer = "hold out fewer (--valid and --test, or data.valid_size and data.test_size)"
    for valid, test, told in (
        (5, 4, f"valid 5 and test 4 leave nothing of 9 pairs for train; {fewer}"),
        (0.5, 0.5, f"valid 4 and test 4 leave nothing of 8 pairs for train; {fewer}"),
        (-1, 0, "--valid must be 0 or more, not -1"),
        (1, 1.5, "--test: a share must be at least 0 and below 1, not 1.5"),
    ):
        with pytest.raises(SettingsError) as refused:
            plan_split(knot[: 8 if valid == 0.5 else 9], valid, test)
        assert str(refused.value) == told


def test_a_corpus_that_changes_meanwhile_is_told() -> None:
    pairs = [Pair(f"source {number}", f"target {number}") for number in range(10)]
    split = plan_split(pairs, 1, 0)
    for changed in (pairs[:-1], [*pairs, pairs[0]]):
        with pytest.raises(CorpusError, match=r"^a\.tsv: changed while it was split; it had 10 pairs; try again$"):
            list(split.parts_of(changed, "a.tsv"))


def test_memory_is_a_few_bytes_a_pair() -> None:
    count = 10_000

    def generate() -> Iterator[Pair]:
        for number in range(count):
            yield Pair(f"a sentence of some length {number}", f"una frase di una certa lunghezza {number}")

    tracemalloc.start()
    try:
        plan_split(generate(), 100, 100)
        assert tracemalloc.get_traced_memory()[1] < 90 * count
    finally:
        tracemalloc.stop()


def test_real_sentences() -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared data is not on this machine")
    pairs = list(read_corpus(Corpus(str(SHARED / "tatoeba" / "en-it.train.tsv"))))
    split = plan_split(pairs, 1000, 0.05)
    assert split.sizes == split.wanted == {"train": 18_976, "valid": 1000, "test": 1051}
    assert_no_sentence_in_two_parts(split, pairs)
