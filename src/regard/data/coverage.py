"""How much of a question an entry covers, from 0 to 1: what a threshold can judge.

In a small collection the inverse document frequency cannot tell "your" from "oat": both stand in few texts. So words
count for less by three signs that need no list of any language: they stand in many entries; they are short, compared
with the other words there; they are what known questions begin with. What no entry has counts in full, so that a
stranger's question is seen to be one. BM25 ranks, to which small words do matter; this judges the first few.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from regard.data.bm25 import is_unspaced, terms, terms_of
from regard.data.words import word_texts, words

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


class Coverage:
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
