"""Language detection by script and by character trigrams.

Trigrams are counted in the held-out sentences of the served runs. A text in a language that no run has is assigned to
the most similar of their languages.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from regard.languages import language_scripts, share_in

MAX_SENTENCES, MAX_CHARACTERS = 2_000, 500
"""Maximum number of sentences used per language, and of characters used of a text."""
UNSEEN = 0.5
"""Count of a trigram that was never seen (additive smoothing)."""
_WORDS = re.compile(r"[^\W\d_]+")


class LanguageDetector:
    """Detects the language of a text by its script, then by its character trigrams (naive Bayes)."""

    def __init__(self, samples: Mapping[str, Sequence[str]]):
        """`samples` has sentences for each language code. A language without any is recognized by its script alone."""
        self._scripts = {code: language_scripts(code) for code in samples}
        self._counts = {
            code: Counter(trigram for sentence in sentences[:MAX_SENTENCES] for trigram in _trigrams(sentence))
            for code, sentences in samples.items()
            if sentences
        }
        self._kinds = len(set().union(*self._counts.values())) + 1

    def detect(self, text: str) -> dict[str, float]:
        """The probability of each language code, highest first; all probabilities are 0 for a text without letters."""
        text = text[:MAX_CHARACTERS]
        trigrams = list(_trigrams(text))
        fitting = [code for code, scripts in self._scripts.items() if not scripts or share_in(text, scripts) >= 0.5]
        if not trigrams or not fitting:
            return dict.fromkeys(self._scripts, 0.0)
        counted = [code for code in fitting if code in self._counts]
        shares = dict.fromkeys(fitting, 1 / len(fitting))  # by the script alone
        if counted:
            logs = {code: self._log_likelihood(trigrams, self._counts[code]) for code in counted}
            best = max(logs.values())
            odds = {code: math.exp(value - best) for code, value in logs.items()}
            for code in counted:
                shares[code] = odds[code] / sum(odds.values()) * len(counted) / len(fitting)
        found = {code: shares.get(code, 0.0) for code in self._scripts}
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def _log_likelihood(self, trigrams: Iterable[str], counts: Counter[str]) -> float:
        whole = counts.total() + UNSEEN * self._kinds
        return sum(math.log((counts[trigram] + UNSEEN) / whole) for trigram in trigrams)


def _trigrams(text: str) -> Iterator[str]:
    """Yield the character trigrams of each word of `text`, with a space added before and after the word."""
    for word in _WORDS.findall(text.casefold()):
        framed = f" {word} "
        yield from (framed[start : start + 3] for start in range(len(framed) - 2))
