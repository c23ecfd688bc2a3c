"""Which script a text is written in.

A letter's script is the first word of its Unicode name: "CYRILLIC SMALL LETTER A" is Cyrillic. That is enough to find
Cyrillic where Latin should be, and needs no table of code points.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from regard.data.languages import SCRIPTS

_KNOWN = frozenset(script for scripts in SCRIPTS.values() for script in scripts)
_BEYOND_LATIN = re.compile("[^\\0-\u024f]")  # every letter up to there is Latin

COMMON_SHARE = 0.05
"""A script with a smaller share of a sample's letters is taken for foreign words, not for the language."""


def common_scripts(sentences: Iterable[str]) -> frozenset[str]:
    """The scripts that a sample is written in: each that has at least `COMMON_SHARE` of its letters."""
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(filter(None, map(_letter_script, sentence)))
    return frozenset(script for script, count in counts.items() if count >= COMMON_SHARE * counts.total())


def share_in(sentence: str, scripts: frozenset[str]) -> float:
    """Share of the sentence's letters that belong to these scripts; 1 where it has no letter."""
    if "LATIN" in scripts and not _BEYOND_LATIN.search(sentence):
        return 1.0  # most sentences end here, many times faster than letter by letter
    found = [script for script in map(_letter_script, sentence) if script]
    return sum(script in scripts for script in found) / len(found) if found else 1.0


@functools.cache
def _letter_script(character: str) -> str:
    """The script of a letter of any script. "" for other characters and for letters that all scripts borrow (µ, ª)."""
    if not character.isalpha():
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    if script in _KNOWN:
        return script
    # A sign such as the micro sign decomposes into the letter that it is a form of; no letter of another script does.
    is_borrowed = unicodedata.category(character) == "Lm" or unicodedata.decomposition(character)
    return "" if is_borrowed else script or "UNNAMED"
