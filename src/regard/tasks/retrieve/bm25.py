"""BM25 (Robertson et al. 1994) of short texts, by bm25s, and coverage: the share of a question that an entry contains.

A term is a word or a character n-gram of a word, so that "openings" matches "opening". In scripts without spaces
between words, terms are single characters and pairs of characters. The index is not stored: it is built quickly when a
run is opened. A BM25 score is divided by the sum of the weights of the terms of the question, so that it is between 0
and 1. The score is lower if words of the question are in no text.

BM25 ranks entries; coverage decides whether the first entries are good enough. In a small collection the inverse
document frequency cannot distinguish "your" from "oat": both are in few texts. So coverage lowers the weight of a word
that is in many entries, is shorter than most words, or begins known questions. This needs no list of stop words. A word
that is in no entry has full weight, so that unrelated questions get a low coverage.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import SettingsError
from regard.text.words import ShadedWord, word_texts, words

Scores = NDArray[np.float32]

SATURATION, LENGTH = 1.2, 0.75
"""The parameters k1 and b of BM25."""

# Scripts whose terms are characters: Thai, Lao, Myanmar, Khmer, kana, Chinese characters; and Hangul, whose words have
# few characters and many endings.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]"
)


class WordIndex:
    """BM25 index of short texts: scores each text for a question. The terms are words and their character n-grams."""

    def __init__(self, texts: Sequence[str]):
        found = [terms(text) for text in texts]
        self._size = len(texts)
        self._known = Counter(term for one in found for term in set(one))
        self._index: Any = None
        if self._known:
            try:
                bm25s = import_module("bm25s")
            except ImportError:
                raise SettingsError(
                    'BM25 needs bm25s, which is not installed: pip install "regard[retrieve]"'
                ) from None
            self._index = bm25s.BM25(k1=SATURATION, b=LENGTH, method="lucene")
            self._index.index(found, show_progress=False)

    def scores(self, question: str) -> Scores:
        """Return the BM25 score of each text for a question, divided by the highest possible score: from 0 to 1."""
        asked = list(dict.fromkeys(terms(question)))
        if self._index is None or not asked:
            return np.zeros(self._size, np.float32)
        most = sum(map(self._rarity, asked))
        scores: Scores = self._index.get_scores(asked).astype(np.float32) / np.float32(most)
        return scores

    def explain(self, question: str, place: int) -> list[ShadedWord]:
        """Return each word of a question with its part of the score (`scores`) of the text with the index `place`."""
        asked: set[str] = set()
        parts, most = [], 0.0
        for word in words(question):
            new = list(dict.fromkeys(term for term in terms_of(word.text.casefold()) if term not in asked))
            asked.update(new)
            most += sum(map(self._rarity, new))
            gained = float(self._index.get_scores(new)[place]) if self._index is not None and new else 0.0
            parts.append(ShadedWord(word.text, gained))
        return [part._replace(weight=part.weight / most) for part in parts] if most else parts

    def _rarity(self, term: str) -> float:
        """Return the inverse document frequency of a term in the texts, as in the "lucene" variant of bm25s."""
        texts = self._known[term]
        return math.log(1 + (self._size - texts + 0.5) / (texts + 0.5))


def terms(text: str) -> list[str]:
    """Return the index terms of a text (words and their character n-grams) in order; a term may occur several times."""
    return [term for word in word_texts(text) for term in terms_of(word.casefold())]


def terms_of(word: str) -> Iterator[str]:
    """Yield the index terms of a word: the word, and the character 4-grams of "_word_". Punctuation has no terms.

    In scripts without spaces between words, the terms are single characters and pairs of characters.
    """
    if not any(letter.isalnum() or unicodedata.category(letter).startswith("S") for letter in word):
        return
    if _UNSPACED.search(word):
        yield from word
        yield from (word[place : place + 2] for place in range(len(word) - 1))
        return
    yield word
    framed = f"_{word}_"
    yield from (framed[place : place + 4] for place in range(len(framed) - 3))


# ---------------------------------------------------------------------------------------------------------------------
# Coverage

LONG = 5
"""Words with at least this many letters have full weight. If the 75th percentile of the lengths of all words is lower,
it is used instead."""
SHORT = 3
"""Words with at most `LONG` - `SHORT` letters have almost no weight."""


class QueryCoverage:
    """Computes the coverage of a question by an entry of the knowledge base: the share of its words in the entry."""

    def __init__(self, questions_E: Sequence[Sequence[str]], texts_E: Sequence[Sequence[str]]):
        """Count words in E entries. `questions_E` has the known questions of each entry.

        `texts_E` has all texts of each entry that a question is compared with: its questions and maybe its answer.
        """
        self._texts_E = texts_E
        self._terms_of_entry = lru_cache(4096)(self._gather)
        self._known = Counter(term for number in range(len(texts_E)) for term in self._gather(number))
        spoken_E = [[_spoken(question) for question in one] for one in questions_E]
        # Shorter questions are not counted, because they may begin with their topic ("Parking nearby?").
        self._openers = Counter(word for spoken in spoken_E for word in {one[0] for one in spoken if len(one) >= 3})
        lengths = sorted(map(len, {word for one in texts_E for text in one for word in _spoken(text)}))
        self._long = min(LONG, lengths[3 * len(lengths) // 4]) if lengths else LONG

    def share(self, question: str, number: int) -> float:
        """Return the weighted share (0 to 1) of the words of a question that the entry with index `number` contains."""
        own = self._terms_of_entry(number)
        found = total = 0.0
        # Words in capitals, such as TV, are names, unless the whole question is in capitals.
        shouted = question.isupper()
        asked = {
            word.text.casefold(): not shouted and len(word.text) > 1 and word.text.isupper() for word in words(question)
        }
        for word, is_name in asked.items():
            rarities = {term: self._rarity(term) for term in terms_of(word)}
            if not rarities:
                continue
            weight = 1.0 if is_name else self._weight(word)
            met = sum(rarity for term, rarity in rarities.items() if term in own) / sum(rarities.values())
            # Squared, because half of its terms say little about a word. Without spaces, a "word" may be a sentence.
            found += weight * (met if _UNSPACED.search(word) else met**2)
            total += weight
        return found / total if total else 0.0

    def _weight(self, word: str) -> float:
        """Return the weight of a word, up to 1: lower if it is in many entries, is short, or often begins questions."""
        spread = (self._rarity(word) / self._rarity("")) ** 2
        opening = min(self._openers[word] / self._known[word], 1.0) if self._known[word] else 0.0
        fullness = 1.0
        # Function words are short in alphabets that write vowels: Latin, Greek, Cyrillic, Armenian. In others, for
        # example Hebrew and Arabic, nouns may have three letters.
        if word.isalpha() and all(letter < "\u0590" or "\u1e00" <= letter <= "\u1fff" for letter in word):
            fullness = min(max((len(word) - self._long + SHORT) / SHORT, 0.0), 1.0) ** 2
        return max(spread * fullness * (1 - 0.95 * opening), 0.02)  # above 0: a question may have only such words

    def _rarity(self, term: str) -> float:
        """Return the inverse document frequency of a term in the entries; a term in no entry counts as in one entry."""
        entries, holding = len(self._texts_E), max(self._known[term], 1)
        return math.log(1 + (entries - holding + 0.5) / (holding + 0.5))

    def _gather(self, number: int) -> frozenset[str]:
        return frozenset(term for text in self._texts_E[number] for term in terms(text))


def _spoken(text: str) -> list[str]:
    return [word.casefold() for word in word_texts(text) if word.isalpha()]
