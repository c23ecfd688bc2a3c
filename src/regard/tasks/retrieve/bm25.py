"""BM25 (Robertson et al. 1994) over short texts, by bm25s, with terms that serve any script.

A term is a word, or a run of a few characters of one, so that "openings" still meets "opening". Where words are not
divided by spaces, single characters and pairs of neighbours are the terms. The index is made anew when it is opened,
which takes a moment; so nothing of it lies in a file.

A score is divided by the sum of what the terms of the question weigh, which no text reaches: it is between 0 and 1, and
words that no text has lower it. Whether it is good enough is judged by coverage.py.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import SettingsError
from regard.text.words import word_texts, words

Scores = NDArray[np.float32]

SATURATION, LENGTH = 1.2, 0.75
"""BM25's k1 and b."""
RUN = 4
"""Characters of a run."""

# Thai, Lao, Myanmar, Khmer, kana, Chinese characters; Hangul, whose words have few characters and many endings.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]"
)


class MatchedWord(NamedTuple):
    """A word of a question and what it adds to a score."""

    text: str
    share: float


class WordIndex:
    """Texts, by number, to be found by their words."""

    def __init__(self, texts: Sequence[str]):
        found = [terms(text) for text in texts]
        self._size = len(texts)
        self._known = Counter(term for one in found for term in set(one))
        self._index: Any = None
        if self._known:
            self._index = _bm25s().BM25(k1=SATURATION, b=LENGTH, method="lucene")
            self._index.index(found, show_progress=False)

    def scores(self, question: str) -> Scores:
        """How well each text answers to the words of a question, from 0 to 1."""
        asked = list(dict.fromkeys(terms(question)))
        if self._index is None or not asked:
            return np.zeros(self._size, np.float32)
        most = sum(map(self._rarity, asked))
        scores: Scores = self._index.get_scores(asked).astype(np.float32) / np.float32(most)
        return scores

    def explain(self, question: str, place: int) -> list[MatchedWord]:
        """The words of a question, each with what it adds to the score of a text; together they are the score."""
        asked: set[str] = set()
        parts, most = [], 0.0
        for word in words(question):
            new = list(dict.fromkeys(term for term in terms_of(word.text.casefold()) if term not in asked))
            asked.update(new)
            most += sum(map(self._rarity, new))
            gained = float(self._index.get_scores(new)[place]) if self._index is not None and new else 0.0
            parts.append(MatchedWord(word.text, gained))
        return [part._replace(share=part.share / most) for part in parts] if most else parts

    def _rarity(self, term: str) -> float:
        """The inverse document frequency, as bm25s has it for "lucene"; a term that no text has is the rarest."""
        texts = self._known[term]
        return math.log(1 + (self._size - texts + 0.5) / (texts + 0.5))


def terms(text: str) -> list[str]:
    """What a text is found by, in order and as often as it stands there."""
    return [term for word in word_texts(text) for term in terms_of(word.casefold())]


def terms_of(word: str) -> Iterator[str]:
    """The terms of a word; punctuation has none, while a symbol such as $ or an emoji is one."""
    if not any(map(_speaks, word)):
        return
    if is_unspaced(word):
        yield from word
        yield from (word[place : place + 2] for place in range(len(word) - 1))
        return
    yield word
    framed = f"_{word}_"
    yield from (framed[place : place + RUN] for place in range(len(framed) - RUN + 1))


def is_unspaced(word: str) -> bool:
    """Whether it is of a script whose words are found by their characters."""
    return _UNSPACED.search(word) is not None


def _speaks(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("S")


def _bm25s() -> Any:
    try:
        return import_module("bm25s")
    except ImportError:
        raise SettingsError('BM25 needs bm25s, which is not installed: pip install "regard[retrieve]"') from None


# How much of a question an entry covers, from 0 to 1: what a threshold can judge.
#
# In a small collection the inverse document frequency cannot tell "your" from "oat": both stand in few texts. So
# words
# count for less by three signs that need no list of any language: they stand in many entries; they are short,
# compared
# with the other words there; they are what known questions begin with. What no entry has counts in full, so that a
# stranger's question is seen to be one. BM25 ranks, to which small words do matter; this judges the first few.


LONG = 5
"""From so many letters on a word counts in full; from fewer where three quarters of the words there have fewer."""
SHORT = 3
"""A word that is so much shorter counts next to nothing."""
LEAST = 0.02
"""What a word counts at least: a question may have no other."""
OPENER = 0.95
"""What a word loses that stands nowhere but at the beginning of known questions."""
A_SENTENCE = 3
"""A question of fewer words, such as "Parking nearby?", may begin with what it is about."""
KEPT = 4096
"""Entries whose terms are kept at hand."""


class QueryCoverage:
    """Entries, by number, that questions are held against."""

    def __init__(self, questions_E: Sequence[Sequence[str]], texts_E: Sequence[Sequence[str]]):
        """The known questions of each entry, and all its texts."""
        self._texts_E = texts_E
        self._terms_of_entry = lru_cache(KEPT)(self._gather)
        self._known = Counter(term for number in range(len(texts_E)) for term in self._gather(number))
        self._openers = Counter(word for one in questions_E for word in {_opener(question) for question in one})
        lengths = sorted(map(len, {word for one in texts_E for text in one for word in _spoken(text)}))
        self._long = min(LONG, lengths[3 * len(lengths) // 4]) if lengths else LONG

    def share(self, question: str, number: int) -> float:
        """The share of a question that an entry covers."""
        own = self._terms_of_entry(number)
        found = total = 0.0
        for word, is_name in _asked(question).items():
            found_terms = list(dict.fromkeys(terms_of(word)))
            weight = 1.0 if is_name else self._weight(word)
            rarities = {term: self._rarity(term) for term in found_terms}
            met = sum(rarities[term] for term in found_terms if term in own) / sum(rarities.values())
            # Half of a word's runs are much less than half of the word, but half of a sentence is half of it.
            found += weight * (met if is_unspaced(word) else met**2)
            total += weight
        return found / total if total else 0.0

    def _weight(self, word: str) -> float:
        """What a word counts: the less, the more entries have it, the shorter it is, the more it opens questions."""
        spread = (self._rarity(word) / self._rarity("")) ** 2
        opening = min(self._openers[word] / self._known[word], 1.0) if self._known[word] else 0.0
        return max(spread * self._fullness(word) * (1 - OPENER * opening), LEAST)

    def _fullness(self, word: str) -> float:
        """By length, from 0 to 1: in alphabets that write vowels, small words are short ones."""
        if not word.isalpha() or not _writes_vowels(word):
            return 1.0
        return min(max((len(word) - self._long + SHORT) / SHORT, 0.0), 1.0) ** 2

    def _rarity(self, term: str) -> float:
        """The inverse document frequency by entries; a term that none has is as rare as one of a single entry."""
        entries, holding = len(self._texts_E), max(self._known[term], 1)
        return math.log(1 + (entries - holding + 0.5) / (holding + 0.5))

    def _gather(self, number: int) -> frozenset[str]:
        return frozenset(term for text in self._texts_E[number] for term in terms(text))


def _asked(question: str) -> dict[str, bool]:
    """The words of a question, each once, and whether it is a name in capitals, such as TV, among small letters."""
    shouted = question.isupper()
    return {
        word.text.casefold(): not shouted and len(word.text) > 1 and word.text.isupper()
        for word in words(question)
        if any(True for _ in terms_of(word.text.casefold()))
    }


def _spoken(text: str) -> list[str]:
    return [word.casefold() for word in word_texts(text) if word.isalpha()]


def _opener(question: str) -> str:
    """The word that a sentence begins with; none of a question that is hardly one."""
    spoken = _spoken(question)
    return spoken[0] if len(spoken) >= A_SENTENCE else ""


def _writes_vowels(word: str) -> bool:
    """Latin, Greek, Cyrillic, Armenian; not, for example, Hebrew or Arabic, whose nouns may have three letters."""
    return all(letter < "\u0590" or "\u1e00" <= letter <= "\u1fff" for letter in word)
