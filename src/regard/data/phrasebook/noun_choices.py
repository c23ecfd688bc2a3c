"""Who and what the phrasebook talks about: every noun phrase and subject that it can form."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from regard.data.phrasebook.adjectives import Adjective, adjectives_for
from regard.data.phrasebook.choices import Choices, Each, Either, Of, evenly, only
from regard.data.phrasebook.meaning import GENERAL, OWN, POSSESSIVES, PRONOUNS, Couple, NounPhrase, Subject
from regard.data.phrasebook.nouns import Noun, nouns_with
from regard.data.phrasebook.phrases import Name, names


class Determined(NamedTuple):
    """A determiner and the number of the noun after it."""

    determiner: str
    plural: bool


def _one(*determiners: str) -> Of[Determined]:
    return Of([Determined(determiner, False) for determiner in determiners])


def _many(*determiners: str) -> Of[Determined]:
    return Of([Determined(determiner, True) for determiner in determiners])


# What nobody calls his own.
_NOT_OWNED = frozenset(("road", "sight", "transport", "noise", "show", "heard", "wild", "free", "fruit", "vegetable"))

_Weighted = tuple[float, Choices[Determined]]


class _Countability(NamedTuple):
    """What the determiners before a noun depend on."""

    mass: bool
    pair: bool
    proper: bool
    owned: bool


def _countability(noun: Noun) -> _Countability:
    return _Countability(*(kind in noun.tags for kind in ("mass", "pair", "proper")), noun.tags.isdisjoint(_NOT_OWNED))


@functools.cache
def _determiners(noun: _Countability, policy: str) -> Choices[Determined]:
    """The determiners that a policy, the verb's or the sentence's, leaves to a noun.

    "bare" takes none, "own" what belongs to the subject, "general" a kind of things, "one" a single known thing, "the"
    known things, "known" also owned ones, "new" things not heard of before, "plain" known or new ones, "any" all.
    """
    if noun.proper or policy == "bare":
        return _one("")
    if policy in ("own", "general"):
        determiner = OWN if policy == "own" else GENERAL
        many = noun.pair or (policy == "general" and not noun.mass)
        return _many(determiner) if many else _one(determiner)
    if policy == "one":
        return Either((4, _one("the")), (1, _one("this", "that")))
    known_one, known_many = _known(_one, 4, noun.owned and policy != "the"), _known(_many, 2, noun.owned and policy != "the")
    new_one: list[_Weighted] = [(3, _one("", "some"))] if noun.mass else [(4, _one("a"))]
    new_many: list[_Weighted] = [(2, _many("some"))] if noun.pair else [(2, _many("some")), (1, _many("two", "three", "four"))]
@functools.cache
def _descriptions(noun: Noun) -> Choices[tuple[Adjective, ...]]:
    """No adjective, one, or one before a colour or an origin."""
    fitting = adjectives_for(noun)
    first = Of([adjective for adjective in fitting if adjective.before])
    last = Of([adjective for adjective in fitting if adjective.classifies])
    single: Choices[tuple[Adjective, ...]] = Of([(adjective,) for adjective in fitting])
    double = Each(lambda *both: both, first, last)
    return Either((6, only(())), (3.5, single), (0.8, double))


_UNDESCRIBED: Of[tuple[Adjective, ...]] = only(())


def _phrase(noun: Noun, determined: Determined, adjectives: tuple[Adjective, ...]) -> NounPhrase:
    return NounPhrase(noun, determined.determiner, determined.plural, adjectives)


@functools.cache
def phrases(noun: Noun, policy: str, described: bool = True) -> Choices[NounPhrase]:
    """The noun phrases around a noun that a policy allows."""
    plain = policy in ("bare", "general", "own") or not described
    described_so = _UNDESCRIBED if plain else _descriptions(noun)
    return Each(_phrase, only(noun), _determiners(_countability(noun), policy), described_so)


def phrases_with(tags: frozenset[str], policy: str, described: bool = True) -> Choices[NounPhrase]:
    """The noun phrases around every noun with one of the tags."""
    return evenly([phrases(noun, policy, described) for noun in nouns_with(tags)])


# "I" and "you" are men, as everywhere in the phrasebook.
_SPOUSES = {"husband": ("her",), "wife": ("my", "your", "his")}


@functools.cache
def kin() -> Choices[NounPhrase]:
    """Members of the family, always somebody's: "my sister", "their parents"."""

    def members(noun: Noun) -> Choices[NounPhrase]:
        owners = _SPOUSES.get(noun.english, POSSESSIVES)
        one, many = _one(*owners), _many(*owners)
        number = many if "pair" in noun.tags else Either((4, one), (1, many)) if "several" in noun.tags else one
        dear = Either((12, _UNDESCRIBED), (1, _descriptions_alone(noun)))
        return Each(_phrase, only(noun), number, dear)

    return evenly([members(noun) for noun in nouns_with(frozenset(("kin",)))])


def _descriptions_alone(noun: Noun) -> Of[tuple[Adjective, ...]]:
    return Of([(adjective,) for adjective in adjectives_for(noun)])


@functools.cache
def companions() -> Choices[NounPhrase]:
    """Friends, colleagues, neighbours: those whom others meet; they are never the subject."""
    number = Either((2, _one(*POSSESSIVES)), (2, _many(*POSSESSIVES)))
    return evenly(
        [
            Each(_phrase, only(noun), number, Either((8, _UNDESCRIBED), (1, _descriptions_alone(noun))))
            for noun in nouns_with(frozenset(("companion",)))
        ]
    )


@functools.cache
def roles() -> Choices[NounPhrase]:
    """People known by what they do or are: "the young doctor", "those tourists"."""
    number = Either((5, _one("the")), (1, _one("this", "that")), (2.5, _many("the")), (0.8, _many("this", "that")))
    return evenly([Each(_phrase, only(noun), number, _descriptions(noun)) for noun in nouns_with(frozenset(("role",)))])


@functools.cache
def couples() -> Of[Couple]:
    """A few pairs of people."""
    everybody = names()
    return Of([Couple(first, second) for first, second in itertools.pairwise(everybody[:12])])


@functools.cache
def people() -> Choices[Subject]:
    """Everybody who can do what people do."""
    return Either((9, pronouns()), (4, everybody()), (0.8, couples()), (2.8, kin()), (3.4, roles()))


@functools.cache
def acquaintances() -> Choices[Subject]:
    """The people who are not known by their trade."""
    return Either((9, pronouns()), (5, everybody()), (1, couples()), (3, kin()))


@functools.cache
def strangers() -> Choices[Subject]:
    """The people who are neither named nor family."""
    return Either((9, pronouns()), (6, roles()))


def pronouns() -> Choices[Subject]:
    """I, you, he, she, we, they."""
    return Of(PRONOUNS)


def everybody() -> Choices[Name]:
    """All who have a name."""
    return Of(names())


def creatures(tags: Sequence[str]) -> Choices[NounPhrase]:
    """Animals and vehicles that do something by themselves."""
    return phrases_with(frozenset(tags), "known")
