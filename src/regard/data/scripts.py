"""Which script a text is written in, and which ones a language is written in.

A letter's script is the first word of its Unicode name: "CYRILLIC SMALL LETTER A" is Cyrillic. That is enough to find
Cyrillic where Latin should be, and needs no table of code points.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

_CHINESE = ("CJK", "BOPOMOFO")
_JAPANESE = ("CJK", "HIRAGANA", "KATAKANA")
_KOREAN = ("HANGUL", "CJK")

_LANGUAGES_BY_SCRIPTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("LATIN",),
        "af ast az bm br bs ca ceb co cs cy da de ee en eo es et eu ff fi fil fo fr fy ga gd gl gn gsw ha haw hr ht hu "
        "id ig is it jv kl la lb lg ln lt lv mg mi ms mt nb nds nl nn no nso ny oc om pl pt qu rm rn ro rw sc se sk sl "
        "sm sn so sq ss st su sv sw szl tk tl tn to tr ts ve vec vi wa wo xh yo zu",
    ),
    (("CYRILLIC",), "ab ba be bg bua ce cu cv kk ky mk mn os ru rue sah tg tt udm uk"),
    (("CYRILLIC", "LATIN"), "crh sh sr uz"),
    (("LATIN", "ARABIC"), "ku"),
    (("GREEK",), "el grc"),
    (("ARABIC",), "ar arz ckb fa ps sd ug ur"),
    (("HEBREW",), "he iw yi"),
    (("DEVANAGARI",), "bho hi mai mr ne sa"),
    (("BENGALI",), "as bn"),
    (("GURMUKHI", "ARABIC"), "pa"),
    (("GUJARATI",), "gu"),
    (("ORIYA",), "or"),
    (("TAMIL",), "ta"),
    (("TELUGU",), "te"),
    (("KANNADA",), "kn"),
    (("MALAYALAM",), "ml"),
    (("SINHALA",), "si"),
    (("THAI",), "th"),
    (("LAO",), "lo"),
    (("MYANMAR",), "my shn"),
    (("KHMER",), "km"),
    (("TIBETAN",), "bo dz"),
    (("GEORGIAN",), "ka"),
    (("ARMENIAN",), "hy"),
    (("ETHIOPIC",), "am ti"),
    (("THAANA",), "dv"),
    (("TIFINAGH",), "zgh"),
    (("CHEROKEE",), "chr"),
    (("CANADIAN", "LATIN"), "cr iu oj"),
    (_CHINESE, "lzh wuu yue zh"),
    (_JAPANESE, "ja"),
    (_KOREAN, "ko"),
)
_SCRIPTS_BY_LANGUAGE = {code: scripts for scripts, codes in _LANGUAGES_BY_SCRIPTS for code in codes.split()}

# The scripts that a code may name itself, as in "sr-Latn" (ISO 15924).
_SCRIPTS_BY_SUBTAG = {
    "arab": ("ARABIC",),
    "beng": ("BENGALI",),
    "cyrl": ("CYRILLIC",),
    "deva": ("DEVANAGARI",),
    "guru": ("GURMUKHI",),
    "hans": _CHINESE,
    "hant": _CHINESE,
    "hebr": ("HEBREW",),
    "jpan": _JAPANESE,
    "kore": _KOREAN,
    "latn": ("LATIN",),
    "tfng": ("TIFINAGH",),
}

_KNOWN = frozenset(script for scripts in _SCRIPTS_BY_LANGUAGE.values() for script in scripts)
_BEYOND_LATIN = re.compile("[^\\0-\u024f]")  # every letter up to there is Latin

COMMON_SHARE = 0.05
"""A script with a smaller share of a sample's letters is taken for foreign words, not for the language."""


def language_scripts(code: str) -> frozenset[str] | None:
    """The scripts of a language, by its code; None where the code is not in the table."""
    language, *subtags = code.lower().replace("_", "-").split("-")
    for subtag in subtags:
        if subtag in _SCRIPTS_BY_SUBTAG:
            return frozenset(_SCRIPTS_BY_SUBTAG[subtag])
    scripts = _SCRIPTS_BY_LANGUAGE.get(language)
    return None if scripts is None else frozenset(scripts)


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


def is_language(code: str) -> bool:
    """Whether a code is in the table of languages: "de" is, "src" is not."""
    return language_scripts(code) is not None
