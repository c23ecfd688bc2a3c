"""A guess at the language of a text: the script it is written in, then its letters in threes.

What is usual in a language is learnt from pairs that the runs have kept; so only their languages are known, and a text
in any other is taken for the nearest of them. How sure the guess is says how far ahead of the others it was.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from regard.languages import language_scripts, share_in

SAMPLE, READ = 2_000, 500
"""Sentences that a language is learnt from, and characters of a text that are looked at, at most."""
UNSEEN = 0.5
"""What three letters that were never seen count as."""
_WORDS = re.compile(r"[^\W\d_]+")


class LanguageDetector:
    """Languages, and how likely each three letters are in them."""

    def __init__(self, samples: Mapping[str, Sequence[str]]):
        """`samples`: sentences by language code. A language without any is known by its script alone."""
        self._scripts = {code: language_scripts(code) for code in samples}
        self._counts = {code: _count(sentences) for code, sentences in samples.items() if sentences}
        self._kinds = len(set().union(*self._counts.values())) + 1

    def detect(self, text: str) -> dict[str, float]:
        """How sure each language is, the likeliest first, from 0 to 1: all of them 0 where a text has no letters."""
        text = text[:READ]
        threes = list(_threes(text))
        fitting = [code for code, scripts in self._scripts.items() if not scripts or share_in(text, scripts) >= 0.5]
        if not threes or not fitting:
            return dict.fromkeys(self._scripts, 0.0)
        learnt = [code for code in fitting if code in self._counts]
        shares = dict.fromkeys(fitting, 1 / len(fitting))  # what the script alone says
        if learnt:
            logs = {code: self._log_likelihood(threes, self._counts[code]) for code in learnt}
            best = max(logs.values())
            odds = {code: math.exp(value - best) for code, value in logs.items()}
            for code in learnt:
                shares[code] = odds[code] / sum(odds.values()) * len(learnt) / len(fitting)
        found = {code: shares.get(code, 0.0) for code in self._scripts}
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def _log_likelihood(self, threes: Iterable[str], counts: Counter[str]) -> float:
        whole = counts.total() + UNSEEN * self._kinds
        return sum(math.log((counts[three] + UNSEEN) / whole) for three in threes)


def _count(sentences: Sequence[str]) -> Counter[str]:
    return Counter(three for sentence in sentences[:SAMPLE] for three in _threes(sentence))


def _threes(text: str) -> Iterator[str]:
    """Three letters in a row; the ends of words count as letters."""
    for word in _WORDS.findall(text.casefold()):
        framed = f" {word} "
        yield from (framed[start : start + 3] for start in range(len(framed) - 2))
