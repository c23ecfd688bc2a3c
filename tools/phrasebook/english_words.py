"""English forms: plurals, third persons, pasts and -ing forms, regular by rule and irregular by table."""

from __future__ import annotations

import functools
import re

_IRREGULAR_PASTS = """
be:was break:broke build:built buy:bought choose:chose come:came cut:cut do:did draw:drew drink:drank
drive:drove eat:ate fall:fell feed:fed find:found forget:forgot get:got give:gave go:went have:had hear:heard
know:knew leave:left lend:lent lose:lost make:made meet:met pay:paid put:put read:read ride:rode run:ran
see:saw sell:sold send:sent sing:sang sleep:slept speak:spoke swim:swam take:took teach:taught tell:told
think:thought understand:understood wake:woke wear:wore win:won write:wrote
"""
_SIBILANT = re.compile(r"(s|x|z|ch|sh)$")
# One syllable that ends in one vowel and one consonant doubles the consonant: running, stopped, cutting.
_DOUBLES = re.compile(r"^[^aeiou]*[aeiou][^aeiouwxy]$")
_DOUBLES_ALTHOUGH_LONGER = frozenset(("forget", "prefer", "travel"))


@functools.cache
def plural(noun: str) -> str:
    """The regular plural of a noun."""
    if _SIBILANT.search(noun) or noun in ("tomato", "potato"):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


@functools.cache
def third_person(verb: str) -> str:
    """The form of the present that goes with he and she."""
    irregular = {"be": "is", "have": "has", "go": "goes", "do": "does"}
    return irregular.get(verb) or plural(verb)


def _before_vowel(verb: str) -> str:
    doubles = _DOUBLES.match(verb) or verb in _DOUBLES_ALTHOUGH_LONGER
    return verb + verb[-1] if doubles else verb


@functools.cache
def _irregular_pasts() -> dict[str, str]:
    return dict(pair.split(":") for pair in _IRREGULAR_PASTS.split())


@functools.cache
def past(verb: str) -> str:
    """The simple past."""
    if verb in _irregular_pasts():
        return _irregular_pasts()[verb]
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return _before_vowel(verb) + "ed"


@functools.cache
def ing(verb: str) -> str:
    """The present participle."""
    if verb.endswith("e") and verb not in ("be", "see"):
        return verb[:-1] + "ing"
    return _before_vowel(verb) + "ing"


def indefinite(following: str) -> str:
    """A or an, by the letter that follows; this is correct for all words of the phrasebook."""
    return "an" if following[0].lower() in "aeiou" else "a"
