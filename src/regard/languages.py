"""Languages: codes (ISO 639) with their English names and scripts, and the script that a text is written in.

The script of a letter is the first word of its Unicode name: "CYRILLIC SMALL LETTER A" is Cyrillic. That is enough to
find Cyrillic where Latin is expected, and needs no table of code points.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

_TABLE = """
LATIN: af Afrikaans, ast Asturian, az Azerbaijani, bm Bambara, br Breton, bs Bosnian, ca Catalan, ceb Cebuano,
  co Corsican, cs Czech, cy Welsh, da Danish, de German, ee Ewe, en English, eo Esperanto, es Spanish, et Estonian,
  eu Basque, ff Fulah, fi Finnish, fil Filipino, fo Faroese, fr French, fy Western Frisian, ga Irish,
  gd Scottish Gaelic, gl Galician, gn Guarani, gsw Swiss German, ha Hausa, haw Hawaiian, hr Croatian,
  ht Haitian Creole, hu Hungarian, id Indonesian, ig Igbo, is Icelandic, it Italian, jv Javanese, kl Greenlandic,
  la Latin, lb Luxembourgish, lg Ganda, ln Lingala, lt Lithuanian, lv Latvian, mg Malagasy, mi Māori, ms Malay,
  mt Maltese, nb Norwegian Bokmål, nds Low German, nl Dutch, nn Norwegian Nynorsk, no Norwegian, nso Northern Sotho,
  ny Chichewa, oc Occitan, om Oromo, pl Polish, pt Portuguese, qu Quechua, rm Romansh, rn Rundi, ro Romanian,
  rw Kinyarwanda, sc Sardinian, se Northern Sami, sk Slovak, sl Slovenian, sm Samoan, sn Shona, so Somali, sq Albanian,
  ss Swati, st Southern Sotho, su Sundanese, sv Swedish, sw Swahili, szl Silesian, tk Turkmen, tl Tagalog, tn Tswana,
  to Tongan, tr Turkish, ts Tsonga, ve Venda, vec Venetian, vi Vietnamese, wa Walloon, wo Wolof, xh Xhosa, yo Yoruba,
  zu Zulu
CYRILLIC: ab Abkhazian, ba Bashkir, be Belarusian, bg Bulgarian, bua Buriat, ce Chechen, cu Church Slavic, cv Chuvash,
  kk Kazakh, ky Kyrgyz, mk Macedonian, mn Mongolian, os Ossetian, ru Russian, rue Rusyn, sah Yakut, tg Tajik, tt Tatar,
  udm Udmurt, uk Ukrainian
CYRILLIC LATIN: crh Crimean Tatar, sh Serbo-Croatian, sr Serbian, uz Uzbek
LATIN ARABIC: ku Kurdish
GREEK: el Greek, grc Ancient Greek
ARABIC: ar Arabic, arz Egyptian Arabic, ckb Central Kurdish, fa Persian, ps Pashto, sd Sindhi, ug Uyghur, ur Urdu
HEBREW: he Hebrew, iw Hebrew, yi Yiddish
DEVANAGARI: bho Bhojpuri, hi Hindi, mai Maithili, mr Marathi, ne Nepali, sa Sanskrit
BENGALI: as Assamese, bn Bengali
GURMUKHI ARABIC: pa Punjabi
GUJARATI: gu Gujarati
ORIYA: or Odia
TAMIL: ta Tamil
TELUGU: te Telugu
KANNADA: kn Kannada
MALAYALAM: ml Malayalam
SINHALA: si Sinhala
THAI: th Thai
LAO: lo Lao
MYANMAR: my Burmese, shn Shan
KHMER: km Khmer
TIBETAN: bo Tibetan, dz Dzongkha
GEORGIAN: ka Georgian
ARMENIAN: hy Armenian
ETHIOPIC: am Amharic, ti Tigrinya
THAANA: dv Dhivehi
TIFINAGH: zgh Tamazight
CHEROKEE: chr Cherokee
CANADIAN LATIN: cr Cree, iu Inuktitut, oj Ojibwe
CJK BOPOMOFO: lzh Literary Chinese, wuu Wu Chinese, yue Cantonese, zh Chinese
CJK HIRAGANA KATAKANA: ja Japanese
HANGUL CJK: ko Korean
"""
"""Before each colon: one or more scripts. After it: the languages written in these scripts, as code and name."""
_ROWS = [line.partition(": ") for line in _TABLE.replace("\n  ", " ").strip().split("\n")]
_ENTRIES = [(scripts, *entry.split(" ", 1)) for scripts, _, entries in _ROWS for entry in entries.split(", ")]
NAMES = {code: name for _, code, name in _ENTRIES}
SCRIPTS = {code: frozenset(scripts.split()) for scripts, code, _ in _ENTRIES}

# Script subtags of language codes, as in "sr-Latn" (ISO 15924), each with a language that is written in this script.
_SUBTAGS = {"arab": "ar", "beng": "bn", "cyrl": "ru", "deva": "hi", "hans": "zh", "hant": "zh", "hebr": "he"}
_SUBTAGS |= {"jpan": "ja", "kore": "ko", "latn": "en", "tfng": "zgh"}
_SCRIPTS_BY_SUBTAG = {subtag: SCRIPTS[code] for subtag, code in _SUBTAGS.items()} | {"guru": frozenset({"GURMUKHI"})}

_KNOWN = frozenset(script for scripts in SCRIPTS.values() for script in scripts)
_BEYOND_LATIN = re.compile("[^\\0-\u024f]")  # all letters up to U+024F are Latin

COMMON_SHARE = 0.05
"""`common_scripts` ignores scripts with a smaller share of the letters: such letters come from foreign words."""


def language_name(code: str) -> str:
    """The English name for a language code, e.g. "Portuguese (BR)" for "pt-BR". An unknown code is returned as is."""
    language, _, more = normalize_code(code).partition("-")
    if language not in NAMES:
        return code
    return f"{NAMES[language]} ({more.upper() if len(more) == 2 else more.title()})" if more else NAMES[language]


def normalize_code(code: str) -> str:
    """Normalize a language code, so that codes can be compared: "en_US" and "EN-us" both become "en-us"."""
    return code.strip().replace("_", "-").casefold()


def language_scripts(code: str) -> frozenset[str] | None:
    """The scripts that a language is written in: CYRILLIC and LATIN for "sr", LATIN for "sr-Latn"; None if unknown."""
    language, *subtags = normalize_code(code).split("-")
    for subtag in subtags:
        if subtag in _SCRIPTS_BY_SUBTAG:
            return _SCRIPTS_BY_SUBTAG[subtag]
    return SCRIPTS.get(language)


def common_scripts(sentences: Iterable[str]) -> frozenset[str]:
    """The scripts that the sentences are written in: those of at least 5% (`COMMON_SHARE`) of all their letters."""
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(filter(None, map(_letter_script, sentence)))
    return frozenset(script for script, count in counts.items() if count >= COMMON_SHARE * counts.total())


def share_in(sentence: str, scripts: frozenset[str]) -> float:
    """The share of the letters of a sentence that belong to one of `scripts`; 1 for a sentence without letters."""
    if "LATIN" in scripts and not _BEYOND_LATIN.search(sentence):
        return 1.0  # the common case; looking at each letter would be many times slower
    found = [script for script in map(_letter_script, sentence) if script]
    return sum(script in scripts for script in found) / len(found) if found else 1.0


@functools.cache
def _letter_script(character: str) -> str:
    """The script of a letter; "" for characters that are not letters, and for signs that all scripts use (µ, ª)."""
    if not character.isalpha():
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    if script in _KNOWN:
        return script
    # Signs such as the micro sign have a Unicode decomposition: the letter that they are derived from.
    is_shared = unicodedata.category(character) == "Lm" or unicodedata.decomposition(character)
    return "" if is_shared else script or "UNNAMED"
