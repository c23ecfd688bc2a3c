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
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.words import word_texts, words
from regard.errors import SettingsError

Scores = NDArray[np.float32]

SATURATION, LENGTH = 1.2, 0.75
"""BM25's k1 and b."""
RUN = 4
"""Characters of a run."""

# Thai, Lao, Myanmar, Khmer, kana, Chinese characters; Hangul, whose words have few characters and many endings.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]"
)


class Part(NamedTuple):
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

    def explain(self, question: str, place: int) -> list[Part]:
        """The words of a question, each with what it adds to the score of a text; together they are the score."""
        asked: set[str] = set()
        parts, most = [], 0.0
        for word in words(question):
            new = list(dict.fromkeys(term for term in terms_of(word.text.casefold()) if term not in asked))
            asked.update(new)
            most += sum(map(self._rarity, new))
            gained = float(self._index.get_scores(new)[place]) if self._index is not None and new else 0.0
            parts.append(Part(word.text, gained))
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
