"""Sampled cuts spell the same text, follow their distribution, and repeat with the seed."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import config
from regard.errors import TokenizerError
from regard.text.subword_regularization import BpeDropout, UnigramLattice, resample
from regard.text.tokenizer import Tokenizer, normalize, train_tokenizer

CHOICE = random.Random(7)
SYLLABLES = [
    "the",
    "cat",
    "see",
    "ing",
    "hou",
    "se",
    "ver",
    "über",
    "schrei",
    "ung",
    "tion",
    "24",
    "a",
    "lo",
    "gue",
    "s",
]
WORDS = ["".join(CHOICE.choices(SYLLABLES, k=CHOICE.randint(1, 4))) for _ in range(300)]
LINES = [" ".join(CHOICE.choices(WORDS, k=8)) for _ in range(300)]
BPE = train_tokenizer(LINES, config.TokenizerSettings(kind="bpe", vocab_size=400), seed=1)
UNIGRAM = train_tokenizer(LINES, config.TokenizerSettings(kind="unigram", vocab_size=400), seed=1)

tokenizers = st.sampled_from([BPE, UNIGRAM])
texts = st.lists(st.one_of(st.sampled_from(LINES), st.text())).map(" ".join)
strengths = st.floats(0.001, 0.999)


@given(tokenizers, texts, strengths, st.integers(0, 1000))
def test_any_cut_spells_the_same_text(tokenizer: Tokenizer, text: str, strength: float, seed: int) -> None:
    ids = tokenizer.encode(text)
    other = resample(tokenizer, ids, strength, random.Random(seed))
    assert tokenizer.decode(other) == normalize(text)
    assert other == resample(tokenizer, ids, strength, random.Random(seed))
    assert resample(tokenizer, other, 0.0, random.Random(seed)) == ids


@given(texts)
def test_bpe_without_dropout_is_plain_bpe(text: str) -> None:
    ids = BPE.encode(text)
    assert resample(BPE, ids, 1e-15, random.Random(0)) == ids


def test_cuts_vary() -> None:
    for tokenizer, strength in ((BPE, 0.1), (UNIGRAM, 0.1)):
        generator, ids = random.Random(1), tokenizer.encode(LINES[-1])
        cuts = {tuple(resample(tokenizer, ids, strength, generator)) for _ in range(50)}
        assert len(cuts) > 10


def test_full_dropout_leaves_letters() -> None:
    cut = BpeDropout({"ab": 0.0, "abc": -1.0}).split
    assert cut("abc", 1 - 1e-12, random.Random(1).random) == ["a", "b", "c"]


def test_dropout_follows_its_distribution() -> None:
    """Two merges compete for "abc": ab (first learned) and bc; nothing else can be merged.

    With p = 0.4: ab is seen with 0.6; else bc with 0.4 * 0.6 = 0.24; else neither, 0.16.
    """
    cut, draw = BpeDropout({"ab": 0.0, "bc": -1.0}).split, random.Random(3).random
    counts = Counter(tuple(cut("abc", 0.4, draw)) for _ in range(20_000))
    expected = {("ab", "c"): 0.6, ("a", "bc"): 0.24, ("a", "b", "c"): 0.16}
    assert counts.keys() == expected.keys()
    for tokens, share in expected.items():  # standard deviation at most 0.0035
        assert counts[tokens] / 20_000 == pytest.approx(share, abs=0.015)


def test_a_hidden_merge_is_seen_again_after_the_next_merge() -> None:
    """As in the paper (and unlike SentencePiece), where dropping holds for one merge only.

    "abcd" with ab before cd: both merge if ab is seen and then cd (0.6 * 0.6), or if ab is hidden, cd seen, ab seen
    (0.4 * 0.6 * 0.6).
    """
    cut, draw = BpeDropout({"ab": 0.0, "cd": -1.0}).split, random.Random(4).random
    both = sum(cut("abcd", 0.4, draw) == ["ab", "cd"] for _ in range(20_000)) / 20_000
    assert both == pytest.approx(0.6 * 0.6 + 0.4 * 0.6 * 0.6, abs=0.015)


def all_cuts(word: str, scores: dict[str, float]) -> Iterator[tuple[str, ...]]:
    if not word:
        yield ()
    for end in range(1, len(word) + 1):
        if word[:end] in scores:
            yield from ((word[:end], *rest) for rest in all_cuts(word[end:], scores))


@pytest.mark.parametrize("alpha", [0.2, 0.9])
def test_lattice_follows_its_distribution(alpha: float) -> None:
    scores = {"a": -3.0, "b": -2.5, "c": -2.0, "ab": -2.0, "bc": -4.0, "abc": -5.0, "ca": -1.0}
    word = "abcab"
    weights = {cut: math.exp(alpha * sum(scores[token] for token in cut)) for cut in all_cuts(word, scores)}
    lattice, draw = UnigramLattice(scores), random.Random(5).random
    counts = Counter(tuple(lattice.split(word, alpha, draw)) for _ in range(20_000))
    assert len(weights) == 10
    for cut, weight in weights.items():
        assert counts[cut] / 20_000 == pytest.approx(weight / sum(weights.values()), abs=0.015)
    assert counts.total() == sum(counts[cut] for cut in weights)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_what_was_drawn_at_one_strength_does_not_reach_into_another(kind: str) -> None:
    tokenizer, again = (
        train_tokenizer(LINES, config.TokenizerSettings(kind=kind, vocab_size=400), seed=1) for _ in range(2)
    )
    ids = tokenizer.encode(LINES[-1])
    for strength in (0.1, 0.7, 0.3):
        resample(tokenizer, ids, strength, random.Random(1))
    fresh = resample(again, ids, 0.5, random.Random(2))
    assert resample(tokenizer, ids, 0.5, random.Random(2)) == fresh


def test_a_word_of_unknown_letters_has_one_cut() -> None:
    lattice = UnigramLattice({"a": -1.0})
    assert lattice.split("xay", 0.5, random.Random(1).random) == ["x", "a", "y"]


@pytest.mark.parametrize("kind", ["word", "character"])
def test_only_subwords_can_be_sampled(kind: str) -> None:
    tokenizer = train_tokenizer(LINES, config.TokenizerSettings(kind=kind), seed=1)
    ids = tokenizer.encode(LINES[0])
    assert resample(tokenizer, ids, 0.0, random.Random(1)) == ids
    with pytest.raises(TokenizerError, match="needs subwords"):
        resample(tokenizer, ids, 0.1, random.Random(1))
