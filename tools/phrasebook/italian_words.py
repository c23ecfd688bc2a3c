"""Italian nouns, adjectives and the small words before them: gender, number, articles, elision, contraction."""

from __future__ import annotations

import functools
import re

_VOWEL = re.compile(r"h?[aeiouàèéìòù]", re.IGNORECASE)
# s before a consonant, z, ps, pn, gn, x, y: before these sounds Italian says lo and uno, not il and un.
_IMPURE = re.compile(r"s[^aeiouhàèéìòù]|z|ps|pn|gn|x|y", re.IGNORECASE)


@functools.cache
def onset(word: str) -> str:
    """How a word begins, which determines the form of the word before it: "vowel", "impure" or "plain"."""
    if _VOWEL.match(word):
        return "vowel"
    return "impure" if _IMPURE.match(word) else "plain"


def definite(following: str, feminine: bool, plural: bool) -> str:
    """The definite article before the word `following`: il, lo, l', la, i, gli, le."""
    if feminine:
        return "le" if plural else "l'" if onset(following) == "vowel" else "la"
    if plural:
        return "i" if onset(following) == "plain" else "gli"
    return {"vowel": "l'", "impure": "lo", "plain": "il"}[onset(following)]


def indefinite(following: str, feminine: bool) -> str:
    """The indefinite article before the word `following`: un, uno, una, un'."""
    if feminine:
        return "un'" if onset(following) == "vowel" else "una"
    return "uno" if onset(following) == "impure" else "un"


def euphonic(word: str, following: str) -> str:
    """A and e become ad and ed before the same vowel: ad Anna, ed Elena."""
    return word + "d" if word in ("a", "e") and following[0].lower() == word else word


_ARTICULATED = {"di": "de", "a": "a", "da": "da", "in": "ne", "su": "su"}


def contract(preposition: str, article: str) -> list[str]:
    """A preposition and a definite article as written: one word (nella, dell', sui), or two (con il, per la)."""
    stem = _ARTICULATED.get(preposition)
    if stem is None:
        return [preposition, article]
    if article in ("il", "i"):
        return [stem + article.replace("il", "l")]
    return [stem + "gli"] if article == "gli" else [stem + "l" + article]


def like_article(stem: str, following: str, feminine: bool, plural: bool) -> str:
    """Words that end like the article: quel ragazzo, quell'uomo, quegli zii, quelle case; bel, bell', bei, begli.

    In the feminine only the demonstrative elides as a rule (quell'amica, but bella amica); `stem` says which it is.
    """
    if feminine and (plural or stem == "be" or onset(following) != "vowel"):
        return stem + ("lle" if plural else "lla")
    article = definite(following, feminine, plural)
    return stem + (article if article in ("i", "gli") else "l" if article == "il" else "l" + article)


def good(following: str, feminine: bool, plural: bool) -> str:
    """Buono before its noun is shortened like the indefinite article: buon vino, buono spettacolo, buona torta."""
    if not feminine and not plural:
        return "buono" if onset(following) == "impure" else "buon"
    return inflect("buono", feminine, plural)


_POSSESSIVES = {"my": "mio", "your": "tuo", "his": "suo", "her": "suo", "our": "nostro", "their": "loro"}
_IRREGULAR_POSSESSIVES = {"mio": "miei", "tuo": "tuoi", "suo": "suoi"}


def possessive(english: str, feminine: bool, plural: bool) -> str:
    """The Italian possessive for an English one; it agrees with the possessed noun: mio, mia, miei, mie."""
    word = _POSSESSIVES[english]
    if word == "loro":
        return word
    if plural and not feminine and word in _IRREGULAR_POSSESSIVES:
        return _IRREGULAR_POSSESSIVES[word]
    return inflect(word, feminine, plural)


# Plurals that the endings do not tell: old forms, stress on the ending, words cut short (fotografia).
_IRREGULAR_PLURALS = {
    "uomo": "uomini",
    "mano": "mani",
    "uovo": "uova",
    "zio": "zii",
    "moglie": "mogli",
    "antico": "antichi",
} | {word: word for word in ("foto", "moto", "radio", "rosa")}


@functools.cache
def pluralise(word: str, feminine: bool = False) -> str:
    """The plural of a noun or adjective in the singular of its gender."""
    if word in _IRREGULAR_PLURALS:
        return _IRREGULAR_PLURALS[word]
    if word[-1] not in "aeo":  # città, caffè, autobus, bar: accented and foreign words stay as they are
        return word
    if word.endswith(("ca", "ga")):
        return word[:-1] + ("he" if feminine else "hi")
    if word.endswith(("cia", "gia")):  # camicia, camicie; arancia, arance
        return word[:-1] + "e" if word[-4] in "aeiou" else word[:-2] + "e"
    if word.endswith(("ico", "logo")):  # amico, amici; psicologo, psicologi
        return word[:-1] + "i"
    if word.endswith(("co", "go")):
        return word[:-1] + "hi"
    if word.endswith("io"):
        return word[:-1]
    return word[:-1] + ("e" if word.endswith("a") and feminine else "i")


@functools.cache
def inflect(adjective: str, feminine: bool, plural: bool) -> str:
    """An adjective, given in the masculine singular, agreeing with its noun; a phrase ("alla moda") stays as it is."""
    if " " in adjective or _IRREGULAR_PLURALS.get(adjective) == adjective:
        return adjective
    form = adjective[:-1] + "a" if feminine and adjective.endswith("o") else adjective
    return pluralise(form, feminine) if plural else form


def before_noun(adjective: str, following: str, feminine: bool, plural: bool) -> str:
    """An adjective that stands before its noun, where bello and buono change their endings."""
    if adjective == "bello":
        return like_article("be", following, feminine, plural)
    if adjective == "buono":
        return good(following, feminine, plural)
    return inflect(adjective, feminine, plural)
