"""Language detection by script and by character trigrams.

The trigram frequencies come from the held-out sentences of the served runs, so only their languages are known; a text
in another language is assigned to the nearest of them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from regard.languages import language_scripts, share_in

MAX_SENTENCES, MAX_CHARACTERS = 2_000, 500
"""Limits on the sentences per language, and on the characters of a text that are used."""
UNSEEN = 0.5
"""Count of a trigram that was never seen (additive smoothing)."""
_WORDS = re.compile(r"[^\W\d_]+")


class LanguageDetector:
    """Character trigram frequencies of languages."""

    def __init__(self, samples: Mapping[str, Sequence[str]]):
        """`samples`: sentences by language code. A language without sentences is recognised by its script alone."""
        self._scripts = {code: language_scripts(code) for code in samples}
        self._counts = {
            code: Counter(trigram for sentence in sentences[:MAX_SENTENCES] for trigram in _trigrams(sentence))
            for code, sentences in samples.items()
            if sentences
        }
        self._kinds = len(set().union(*self._counts.values())) + 1

    def detect(self, text: str) -> dict[str, float]:
        """The probability of each language, the highest first; all 0 for a text without letters."""
        text = text[:MAX_CHARACTERS]
        trigrams = list(_trigrams(text))
        fitting = [code for code, scripts in self._scripts.items() if not scripts or share_in(text, scripts) >= 0.5]
        if not trigrams or not fitting:
            return dict.fromkeys(self._scripts, 0.0)
        learnt = [code for code in fitting if code in self._counts]
        shares = dict.fromkeys(fitting, 1 / len(fitting))  # by the script alone
        if learnt:
            logs = {code: self._log_likelihood(trigrams, self._counts[code]) for code in learnt}
            best = max(logs.values())
            odds = {code: math.exp(value - best) for code, value in logs.items()}
            for code in learnt:
                shares[code] = odds[code] / sum(odds.values()) * len(learnt) / len(fitting)
        found = {code: shares.get(code, 0.0) for code in self._scripts}
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def _log_likelihood(self, trigrams: Iterable[str], counts: Counter[str]) -> float:
        whole = counts.total() + UNSEEN * self._kinds
        return sum(math.log((counts[trigram] + UNSEEN) / whole) for trigram in trigrams)


def _trigrams(text: str) -> Iterator[str]:
    """Three characters in a row; a space marks each end of a word."""
    for word in _WORDS.findall(text.casefold()):
        framed = f" {word} "
        yield from (framed[start : start + 3] for start in range(len(framed) - 2))
