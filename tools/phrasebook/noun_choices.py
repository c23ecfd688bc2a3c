"""Noun phrases: all that the phrasebook can form."""

from __future__ import annotations

import functools
from typing import NamedTuple

from tools.phrasebook.adjectives import Adjective, adjectives_for
from tools.phrasebook.choices import Choices, Each, Either, Of, evenly, only
from tools.phrasebook.meaning import GENERAL, OWN, POSSESSIVES, NounPhrase
from tools.phrasebook.nouns import Noun, nouns_with


class Determined(NamedTuple):
    """A determiner and the number of the noun after it."""

    determiner: str
    plural: bool


def one(*determiners: str) -> Of[Determined]:
    """Each determiner, before a singular."""
    return Of([Determined(determiner, False) for determiner in determiners])


def many(*determiners: str) -> Of[Determined]:
    """Each determiner, before a plural."""
    return Of([Determined(determiner, True) for determiner in determiners])


_NUMBERS = ("two", "three", "four")
# Tags of nouns that have no possessive.
_NOT_OWNED = frozenset(
    ("road", "sight", "transport", "noise", "show", "watched", "heard", "wild", "free", "fruit", "vegetable")
)


class _Countability(NamedTuple):
    """The property of a noun that its determiners depend on."""

    mass: bool
    portion: bool
    pair: bool
    proper: bool
    owned: bool


def _countability(noun: Noun) -> _Countability:
    mass, portion, pair, proper = (kind in noun.tags for kind in ("mass", "portion", "pair", "proper"))
    return _Countability(mass, portion, pair, proper, owned=noun.tags.isdisjoint(_NOT_OWNED))


@functools.cache
def _determiners(noun: _Countability, policy: str) -> Choices[Determined]:
    """Return the determiners that a policy allows for a noun; the verb or the sentence chooses the policy.

    "bare": none; "counted": numbers; "own": `OWN`; "general": `GENERAL`; "the": the, this, that; "one": these in the
    singular; "known": these and possessives; "new": a, some; "plain": the, this, that, a, some, numbers; "any": these
    and possessives; "single": these in the singular.
    """
    if noun.proper or policy == "bare":
        return one("")
    if policy == "counted":
        return many(*_NUMBERS)
    if policy in ("own", "general"):
        determiner = OWN if policy == "own" else GENERAL
        is_many = noun.pair or (policy == "general" and not noun.mass and not noun.portion)
        return many(determiner) if is_many else one(determiner)
    owners = POSSESSIVES if noun.owned and policy in ("known", "single", "any") else ()
    single: list[tuple[float, Of[Determined]]] = []
    several: list[tuple[float, Of[Determined]]] = []
    if policy != "new":
        single += [(4, one("the")), (1.5, one("this", "that")), (2, one(*owners))]
        several += [(2, many("the")), (1, many("this", "that")), (1, many(*owners))]
    if policy in ("new", "plain", "single", "any"):
        single += [(5, one("", "some"))] if noun.mass else [(4, one("a"))]
        several += [(2, many("some")), (1, many(*(() if noun.pair or policy == "new" else _NUMBERS)))]
    if noun.pair:
        return Either(*several)
    return Either(*single) if noun.mass or policy in ("one", "single") else Either(*single, *several)


@functools.cache
def descriptions(noun: Noun) -> Choices[tuple[Adjective, ...]]:
    """Return tuples of adjectives: none, one, or two of which the second is a color or an origin."""
    fitting = adjectives_for(noun)
    first = Of([adjective for adjective in fitting if adjective.before])
    last = Of([adjective for adjective in fitting if adjective.classifies])
    single: Choices[tuple[Adjective, ...]] = Of([(adjective,) for adjective in fitting])
    double = Each(lambda *both: both, first, last)
    return Either((6, only(())), (3.5, single), (0.8, double))


UNDESCRIBED: Of[tuple[Adjective, ...]] = only(())


def make_noun_phrase(noun: Noun, determined: Determined, adjectives: tuple[Adjective, ...]) -> NounPhrase:
    """A noun phrase from its parts."""
    return NounPhrase(noun, determined.determiner, determined.plural, adjectives)


@functools.cache
def phrases(noun: Noun, policy: str, described: bool = True) -> Choices[NounPhrase]:
    """The noun phrases around a noun that a policy allows."""
    plain = policy in ("bare", "general", "own") or not described
    described_so = UNDESCRIBED if plain else descriptions(noun)
    return Each(make_noun_phrase, only(noun), _determiners(_countability(noun), policy), described_so)


def phrases_with(tags: frozenset[str], policy: str, described: bool = True) -> Choices[NounPhrase]:
    """The noun phrases around every noun with one of the tags."""
    return evenly([phrases(noun, policy, described) for noun in nouns_with(tags)])
