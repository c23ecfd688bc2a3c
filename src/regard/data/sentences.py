"""Sentences of a longer text: what a line that is too long for a model is cut into."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

# A mark that may end a sentence, what closes after it, and white space. Chinese, Japanese and Indian marks need none.
_CLOSING = r"\"'”’»)\]」』）"
_MARK = re.compile(rf"[.!?…؟۔।॥][{_CLOSING}]*\s+(?=\S)|[。！？।॥](?![。！？।॥{_CLOSING}])")

# What is looked at before a period: nothing below needs more.
_BEFORE = 24
# An initial. Beyond these alphabets a letter may be a syllable, and thus a word.
_LETTER = r"[^\W\d_\u0900-\U0010ffff]"
ABBREVIATIONS = (
    "Mr Mrs Ms Mx Dr Dra Prof St Ste Sta Sr Sra Srta Jr Sig Sigg Dott Avv Ing Dipl Hr Fr Mme Mlle MM Rev Hon Gen Col "
    "Capt Lt Sgt Gov Mt vs cf ca etc al bzw usw ggf evtl inkl dhr mevr проф др им"
)
"""Words before a period that does not end a sentence, in case as written."""
_SHORTENED = re.compile(rf"(?:^|[\s.(\[/\"“„«–-])['’]?(?:{_LETTER}|{ABBREVIATIONS.replace(' ', '|')})$")
# Before a digit any short word may be one ("No. 5", "Abb. 3", "Sept. 2"), and a number may be a day ("3. 5. 2020").
_COUNTED = re.compile(rf"(?:^|[\s.(\[/\"“„«–-])(?:{_LETTER}{{1,4}}|\d\d?)$")
# An ordinal: it begins the text, or follows a comma and the like, another ordinal, or what stands before one in German,
# the only language in which the next word is often a capital one.
_ORDINAL = re.compile(
    r"(?:^|[,;:.!?–-]\s+|[(\[]|\.[/–-]|\d\.\s+\w+\s+"
    r"|\b(?:(?<!i )am|im|vom|zum|zur|beim|ab|seit|de[mnrs]|die|das|eine?[mnr]?|jede[mnrs]?)\s+)(?:\d\d?|[ivx]+)$",
    re.IGNORECASE,
)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without the spaces between them.

    Where it is doubtful, nothing is cut: two sentences together do less harm than half of one. So a sentence is not
    ended by an initial ("Plan B. Then"), by "etc." or "p.m.", nor before a number by a short word. What is cut wrongly:
    names after abbreviations that are not listed, and German ordinals after a noun ("Beethovens 9. Sinfonie").
    """
    pieces, start = [], 0
    for match in _MARK.finditer(text):
        if _ends(text, match):
            pieces.append(text[start : match.end()].strip())
            start = match.end()
    return [piece for piece in [*pieces, text[start:].strip()] if piece]


def _ends(text: str, match: re.Match[str]) -> bool:
    """Whether a sentence ends at a mark: no small letter follows, and a period does not belong to the word before."""
    following = text[match.end() : match.end() + 1]
    if following != following.title():  # Georgian letters count as small, but no sentence begins otherwise
        return False
    if not match[0].startswith("."):
        return True
    before = text[max(0, match.start() - _BEFORE) : match.start()]
    if following.isdecimal() and _COUNTED.search(before):
        return False
    return not _SHORTENED.search(before) and not _ORDINAL.search(before)


def cut(text: str, fits: Callable[[str], bool], together: Callable[[str], bool] | None = None) -> list[str]:
    """Pieces of a text that fit: whole sentences, or parts of a sentence that alone does not fit.

    Neighbours are joined as long as they fit `together`, which may be stricter than what fits alone.
    """
    together = together or fits
    if together(text):
        return [text]
    sentences = split_sentences(text)
    if len(sentences) < 2 and fits(text):
        return [text]
    return list(_pack([piece for sentence in sentences for piece in _parts(sentence, fits)], together))


def _parts(sentence: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """A sentence that fits, or its halves, cut between words; a word that does not fit is cut like any text."""
    words = sentence.split()
    if fits(sentence) or len(sentence) < 2:
        yield sentence
        return
    if len(words) < 2:
        middle = len(sentence) // 2
        halves = [sentence[:middle], sentence[middle:]]
    else:
        middle = len(words) // 2
        halves = [" ".join(words[:middle]), " ".join(words[middle:])]
    for half in halves:
        yield from _parts(half, fits)


def _pack(pieces: list[str], fits: Callable[[str], bool]) -> Iterator[str]:
    """Neighbours joined as long as they fit."""
    run = ""
    for piece in pieces:
        joined = f"{run} {piece}" if run else piece
        if run and not fits(joined):
            yield run
            run = piece
        else:
            run = joined
    if run:
        yield run
