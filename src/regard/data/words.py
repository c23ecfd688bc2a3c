"""What a word is: the one definition that merging subwords, aligning, scoring and shading all share."""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass

# Not marks by category, but they too live inside a word: the joiners of Persian and of the Indic scripts.
_JOINERS = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Word:
    """A word and where it stands: `text == sentence[start:end]`."""

    text: str
    start: int
    end: int


def words(text: str) -> list[Word]:
    """The words of `text`, in order; together they cover every character that is not a space, once.

    Spaces separate. A punctuation mark is a word. An elided word ends after its apostrophe ("l'", "amico"), while an
    English clitic stays with its word ("didn't", "they'll").
    """
    return [Word(match.group(), match.start(), match.end()) for match in _pattern(_marks(text)).finditer(text)]


def word_texts(text: str) -> list[str]:
    """The words alone, without their places."""
    return _pattern(_marks(text)).findall(text)


def _marks(text: str) -> str:
    """The combining marks and joiners of `text`, each once; `re` does not count them among the letters."""
    if text.isascii():
        return ""
    return "".join(sorted({c for c in set(text) if c in _JOINERS or unicodedata.category(c).startswith("M")}))


@functools.lru_cache(maxsize=64)
def _pattern(marks: str) -> re.Pattern[str]:
    mark = f"[{re.escape(marks)}]" if marks else "(?!)"
    letter = f"(?:[^\\W_]|{mark})" if marks else "[^\\W_]"
    apostrophe = "['’]"
    return re.compile(
        f"{letter}++(?:{apostrophe}(?:s|t|m|d|re|ve|ll)(?!{letter}))+"  # English clitics: didn't, it's, shouldn't've
        f"|{letter}++{apostrophe}(?={letter})"  # elision: l'amico, c'è, dell'acqua
        f"|po{apostrophe}(?!{letter})"  # the one truncated word of everyday Italian: un po' di pane
        f"|{letter}++"
        f"|\\S{mark}*",  # anything else is one mark: punctuation, a symbol, an emoji with its variation selector
        re.IGNORECASE,
    )
