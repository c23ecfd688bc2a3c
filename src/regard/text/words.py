"""Words and sentences of a text, for merging subwords, alignment, scoring, shading and splitting long texts."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

# The joiners of Persian and of the Indic scripts: part of a word, but not of the Unicode category of marks.
_JOINERS = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its position: `text == sentence[start:end]`."""

    text: str
    start: int
    end: int


class ShadedWord(NamedTuple):
    """A word and its weight: usually its share of the attention (or of another attribution) on its sentence."""

    text: str
    weight: float


@dataclass(frozen=True)
class ShadedSentence:
    """A sentence, its words, and its weight: its share of the attention on the whole text, from 0 to 1."""

    text: str
    weight: float
    words: tuple[ShadedWord, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"text": self.text, "weight": self.weight, "words": [word._asdict() for word in self.words]}


def words(text: str) -> list[Word]:
    """The words of `text`, in order. Every character that is not a space belongs to exactly one word.

    Spaces separate words. A punctuation mark is a word. An elided word ends after its apostrophe: "l'amico" is "l'" and
    "amico". English forms such as "didn't" and "they'll" are one word.
    """
    return [Word(match.group(), match.start(), match.end()) for match in _pattern(_marks(text)).finditer(text)]


def word_texts(text: str) -> list[str]:
    """The words of `text` as strings, without their positions."""
    return _pattern(_marks(text)).findall(text)


def _marks(text: str) -> str:
    """The distinct combining marks and joiners in `text`, which `re` does not treat as letters."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Sentences

# A mark that may end a sentence, with closing quotes or brackets, and the white space after it. Chinese, Japanese and
# Indian marks need no white space.
_CLOSING = r"\"'”’»)\]」』）"
_MARK = re.compile(rf"[.!?…؟۔।॥][{_CLOSING}]*\s+(?=\S)|[。！？।॥](?![。！？।॥{_CLOSING}])")

# One letter: an initial. Not in scripts where one letter may be a syllable, and so a word.
_LETTER = r"[^\W\d_\u0900-\U0010ffff]"
ABBREVIATIONS = (
    "Mr Mrs Ms Mx Dr Dra Prof St Ste Sta Sr Sra Srta Jr Sig Sigg Dott Avv Ing Dipl Hr Fr Mme Mlle MM Rev Hon Gen Col "
    "Capt Lt Sgt Gov Mt vs cf ca etc al bzw usw ggf evtl inkl dhr mevr проф др им"
)
"""Abbreviations: a period after one of these words does not end a sentence. Letter case matters."""
# These patterns are compiled when a text first needs them, by `re.search`: it would delay the first translation.
_SHORTENED = rf"(?:^|[\s.(\[/\"“„«–-])['’]?(?:{_LETTER}|{ABBREVIATIONS.replace(' ', '|')})$"
# Before a digit any short word may be an abbreviation ("No. 5", "Abb. 3"), and a number may be a day ("3. 5. 2020").
_COUNTED = rf"(?:^|[\s.(\[/\"“„«–-])(?:{_LETTER}{{1,4}}|\d\d?)$"
# An ordinal: at the start of the text, or after punctuation, another ordinal, or a German article or preposition.
# German is the only language in which the word after an ordinal often has a capital letter.
_ORDINAL = (
    r"(?i)(?:^|[,;:.!?–-]\s+|[(\[]|\.[/–-]|\d\.\s+\w+\s+"
    r"|\b(?:(?<!i )am|im|vom|zum|zur|beim|ab|seit|de[mnrs]|die|das|eine?[mnr]?|jede[mnrs]?)\s+)(?:\d\d?|[ivx]+)$"
)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without the spaces between them.

    Doubtful places are not split: two joined sentences do less harm than half a sentence. So a sentence does not end
    after an initial ("Plan B. Then"), after "etc." or "p.m.", or after a short word before a number. Known mistakes:
    splits after abbreviations that are not listed, and after German ordinals that follow a noun, as in
    "Beethovens 9. Sinfonie".
    """
    pieces, start = [], 0
    for match in _MARK.finditer(text):
        if _ends(text, match):
            pieces.append(text[start : match.end()].strip())
            start = match.end()
    return [piece for piece in [*pieces, text[start:].strip()] if piece]


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether a sentence ends at the punctuation `match`: not before a lower-case letter, nor after an abbreviation."""
    following = text[match.end() : match.end() + 1]
    if following != following.title():  # Georgian letters are lower-case, but equal to their title case
        return False
    if not match[0].startswith("."):
        return True
    before = text[max(0, match.start() - 24) : match.start()]  # no pattern needs more
    if following.isdecimal() and re.search(_COUNTED, before):
        return False
    return not re.search(_SHORTENED, before) and not re.search(_ORDINAL, before)


def cut(text: str, fits: Callable[[str], bool], together: Callable[[str], bool] | None = None) -> list[str]:
    """Split a text at sentence ends into pieces for which `fits(piece)` is true.

    A sentence that does not fit is split between words. Neighboring sentences are joined into one piece as long as
    `together(piece)` (default: `fits`) is true.
    """
    together = together or fits
    if together(text):
        return [text]
    sentences = split_sentences(text)
    if len(sentences) < 2 and fits(text):
        return [text]
    pieces: list[str] = []
    for piece in chain.from_iterable(_parts(sentence, fits) for sentence in sentences):
        if pieces and together(f"{pieces[-1]} {piece}"):
            pieces[-1] += f" {piece}"
        else:
            pieces.append(piece)
    return pieces


def _parts(sentence: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """Halve a sentence between words until `fits(part)` is true for all parts; a long word is split in the middle."""
    if fits(sentence) or len(sentence) < 2:
        yield sentence
        return
    words = sentence.split()
    parts, glue = (words, " ") if len(words) > 1 else (sentence, "")
    middle = len(parts) // 2
    for half in (parts[:middle], parts[middle:]):
        yield from _parts(glue.join(half), fits)
