"""Divides text into words as in treebanks and CoNLL files, for taggers that were trained on such words.

Unlike in `text/words.py`, numbers, abbreviations, compounds and addresses are one word, and English clitics are
separate words ("did n't") if they are in the training data.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from regard.text.words import ABBREVIATIONS, Word, words

CLITICS = ("n't", "'s", "'ll", "'re", "'ve", "'d", "'m")
"""English words that are written without a space before them."""
_SHORT = (
    f"{ABBREVIATIONS} Inc Corp Co Cos Ltd Bros Messrs Sen Rep Reps Pres Maj Cpl Ft Ave Blvd Rd Dept Univ Assn approx "
    "Jan Feb Apr Aug Sept Oct Nov Dec Calif Mass Conn Ariz Fla Mich Ill Colo Ky Pa Md Okla Tenn Va Wash Ont"
)
_CLOSING = " \t\"'”’»)]"
_PART, _LETTER, _APOSTROPHE = r"[^\W_]", r"[^\W\d_]", "['’]"
# Lengths are limited where the time would otherwise be quadratic in the length of the text.
_ADDRESS = (
    r"(?:[A-Za-z][A-Za-z0-9+.-]{1,15}://|www\.)\S*[^\s.,;:!?'\"’”»)\]}>]"  # without the punctuation after the address
    r"|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
)
# Web addresses and numbers, which are one word even in text that is divided by the rules of `text/words.py`.
_ANYWHERE = re.compile(rf"{_ADDRESS}|(?<!\d)\d++(?:[.,:/-]\d++)+")


def treebank_words(text: str, clitics: Sequence[str] = ()) -> list[Word]:
    """Return the words of `text`, in order. Every character that is not a space is in exactly one word.

    The given `clitics`, which are elements of `CLITICS`, become separate words. With clitics, the text is read as
    English: other apostrophes do not end a word ("O'Brien"). Without clitics, apostrophes are read as in
    `text/words.py` ("l'", "amico").
    """
    last = len(text.rstrip(_CLOSING))
    found: list[Word] = []
    for chunk in re.finditer(r"\S+", text):
        if _needs_other_rules(chunk.group()):
            found += _divide_by_other_rules(text, *chunk.span())
        else:
            found += _divide(text, *chunk.span(), tuple(clitics), last)
    return found


def find_clitics(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the elements of `CLITICS` that the training data has more often as words than at the end of longer words.

    `counts` maps each word of the training data to its number of occurrences.
    """
    alone, attached = dict.fromkeys(CLITICS, 0), dict.fromkeys(CLITICS, 0)
    for word, count in counts.items():
        plain = word.lower().replace("’", "'")
        if "'" in plain:
            for clitic in CLITICS:
                if plain.endswith(clitic):
                    (alone if plain == clitic else attached)[clitic] += count
    return tuple(clitic for clitic in CLITICS if alone[clitic] > attached[clitic])


def _needs_other_rules(chunk: str) -> bool:
    """Whether `chunk`, a text without spaces, has combining marks, or letters not of Latin, Greek or Cyrillic.

    Such text is divided by the rules of `text/words.py`.
    """
    return not chunk.isascii() and any(
        (c.isalpha() and not (c < "\u0530" or "\u1e00" <= c < "\u2000"))
        or unicodedata.category(c) in ("Mn", "Mc", "Me", "Cf")
        for c in chunk
    )


def _divide_by_other_rules(text: str, start: int, end: int) -> Iterator[Word]:
    """Divide `text[start:end]` into words as `text/words.py` does, but keep each web address and number as one word."""
    for match in [*_ANYWHERE.finditer(text, start, end), None]:
        between = text[start : match.start() if match else end]
        yield from (Word(word.text, start + word.start, start + word.end) for word in words(between))
        if match:
            yield Word(match.group(), *match.span())
            start = match.end()


def _divide(text: str, start: int, end: int, clitics: tuple[str, ...], last: int) -> Iterator[Word]:
    """Divide `text[start:end]`, which has no spaces, into words; each of `clitics` becomes a separate word.

    A period just before the position `last` ends the sentence: only quotes, brackets and spaces follow it.
    """
    for match in _pattern(clitics).finditer(text, start, end):
        cuts = [*match.span()]
        if match.lastgroup == "short":
            is_number = text[match.end() : match.end() + 2].strip().isdecimal()
            if match.end() >= last or (match.group() == "No." and not is_number):
                cuts.insert(1, match.end() - 1)  # the period also ends the sentence: treebanks count it as punctuation
        elif match.lastgroup == "word":
            cuts[1:1] = _clitic_starts(match, clitics)
        for one, other in pairwise(cuts):
            yield Word(text[one:other], one, other)


def _clitic_starts(match: re.Match[str], clitics: tuple[str, ...]) -> list[int]:
    """Return where each clitic at the end of the word `match` starts, as positions in the text: should|n't|'ve."""
    starts: list[int] = []
    rest = match.group().lower().replace("’", "'")
    if len(rest) != len(match.group()):  # a few letters become longer in lower case
        return starts
    for _ in range(3):  # a word has at most three clitics
        ending = next((clitic for clitic in clitics if rest.endswith(clitic) and rest != clitic), "")
        if not ending:
            break
        rest = rest.removesuffix(ending)
        starts.insert(0, match.start() + len(rest))
    return starts


@functools.lru_cache(maxsize=16)
def _pattern(clitics: tuple[str, ...]) -> re.Pattern[str]:
    joined = [
        f"-{_PART}++",  # long-term, 2024-01-15
        rf"(?<=\d)[.,:/](?=\d){_PART}++",  # 3,000.50, 10:30, 1/2
        rf"\.(?=[a-z0-9]){_PART}++",  # example.com, v2.0
        f"(?<=[A-Z])&(?=[A-Z]){_PART}++",  # AT&T
    ]
    usual = f"(?i:{_APOSTROPHE}(?:s|t|m|d|re|ve|ll)(?!{_PART}))"
    end = "" if clitics else f"(?:{usual})*"
    if clitics:
        kinds = [f"(?P<word>{_PART}++(?:{'|'.join([*joined, f'{_APOSTROPHE}{_PART}++'])})*+)"]
        after = "|".join(clitic[1:] for clitic in clitics if clitic[0] == "'")
        kinds += [rf"(?<=[\w.]){_APOSTROPHE}(?:{after})(?!{_PART})"] if after else []  # the U.S.|'s
    else:
        whole = f"{_PART}++(?:{'|'.join(joined)})*+"  # possessive: "1.1.1.1" could match in many ways
        kinds = [f"{whole}(?:{usual})+", f"[Pp]o{_APOSTROPHE}(?!{_PART})", f"{whole}{_APOSTROPHE}(?={_PART})", whole]
    return re.compile(
        "|".join(
            [
                _ADDRESS,
                rf"{_LETTER}(?:\.{_LETTER})++(?!\w)(?:\.(?!\w))?(?:-{_PART}+)*{end}",  # U.S., U.S.-based
                r"Ph\.D\b\.?",
                rf"(?P<short>(?:No|{_SHORT.replace(' ', '|')})\.(?![a-z])|[A-HJ-ZÀ-ÖØ-ÞА-Я]\.(?![\w.]))",
                *kinds,
                rf"(?<!\w){_APOSTROPHE}\d\ds(?!\w)",  # the '90s
                r"(?<!\w)\.\d+",  # .5
                r"\.{2,}|-{2,}|[!?]{2,}|={2,}|\*{2,}|_{2,}|``|''",
                r"\S",
            ]
        )
    )
