"""Subjects: every person, and everything else that can be a subject."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from tools.phrasebook.adjectives import Adjective, adjectives_for
from tools.phrasebook.choices import Choices, Each, Either, Of, evenly, only
from tools.phrasebook.meaning import HE, POSSESSIVES, PRONOUNS, SHE, THEY, YOU, Couple, NounPhrase, Subject, Who
from tools.phrasebook.noun_choices import UNDESCRIBED, descriptions, make_noun_phrase, many, one, phrases_with
from tools.phrasebook.nouns import Noun, nouns_with
from tools.phrasebook.phrases import Name, names


class Subjects(NamedTuple):
    """Subjects of statements, and subjects of questions. (Nobody asks "Am I thirsty?".)"""

    told: Choices[Subject]
    asked: Choices[Subject]


def anyhow(subjects: Choices[Subject]) -> Subjects:
    """The same subjects for statements and questions."""
    return Subjects(subjects, subjects)


# "I" and "you" are men, as everywhere in the phrasebook.
_SPOUSES = {"husband": ("her",), "wife": ("my", "your", "his")}


@functools.cache
def kin() -> Choices[NounPhrase]:
    """Family members, always with a possessive: "my sister", "their parents"."""

    def members(noun: Noun) -> Choices[NounPhrase]:
        owners = _SPOUSES.get(noun.english, POSSESSIVES)
        single, several = one(*owners), many(*owners)
        number = (
            several if "pair" in noun.tags else Either((4, single), (1, several if "several" in noun.tags else Of([])))
        )
        return Each(make_noun_phrase, only(noun), number, Either((12, UNDESCRIBED), (1, _single_descriptions(noun))))

    return evenly([members(noun) for noun in nouns_with(frozenset(("kin",)))])


def _single_descriptions(noun: Noun) -> Of[tuple[Adjective, ...]]:
    return Of([(adjective,) for adjective in adjectives_for(noun)])


@functools.cache
def companions() -> Choices[NounPhrase]:
    """Friends, colleagues, neighbors: they are only objects, never subjects."""

    def companion(noun: Noun) -> Choices[NounPhrase]:
        number = Either((1, one(*POSSESSIVES)), (1, many(*POSSESSIVES)))
        return Each(make_noun_phrase, only(noun), number, Either((8, UNDESCRIBED), (1, _single_descriptions(noun))))

    return evenly([companion(noun) for noun in nouns_with(frozenset(("companion",)))])


@functools.cache
def roles() -> Choices[NounPhrase]:
    """People known by what they do or are: "the young doctor", "those tourists"."""
    number = Either((5, one("the")), (1, one("this", "that")), (2.5, many("the")), (0.8, many("this", "that")))
    known = nouns_with(frozenset(("role",)))
    return evenly([Each(make_noun_phrase, only(noun), number, descriptions(noun)) for noun in known])


@functools.cache
def couples() -> Of[Couple]:
    """A few pairs of people: a woman and a man, or two women (feminine plural in Italian)."""
    mixed, women = itertools.pairwise(names()[:10]), itertools.pairwise(names()[:10:2])
    return Of([Couple(first, second) for first, second in (*mixed, *women)])


@functools.cache
def everybody() -> Of[Name]:
    """People with a name."""
    return Of(names())


@functools.cache
def pronouns() -> Subjects:
    """I, you, he, she, we, they."""
    return Subjects(Of(PRONOUNS), Either((2, only(YOU)), (3, Of([HE, SHE, THEY]))))


def _pronouns_and(*others: tuple[float, Choices[Subject]]) -> Subjects:
    told, asked = pronouns()
    return Subjects(Either((9, told), *others), Either((9, asked), *others))


@functools.cache
def people() -> Subjects:
    """All people: names, pronouns, family, roles and couples."""
    return _pronouns_and((4, everybody()), (0.8, couples()), (2.8, kin()), (3.4, roles()))


@functools.cache
def acquaintances() -> Subjects:
    """All people but roles."""
    return _pronouns_and((5, everybody()), (1, couples()), (3, kin()))


@functools.cache
def strangers() -> Subjects:
    """Pronouns and roles: people without a name who are not family."""
    return _pronouns_and((6, roles()))


def who() -> Subjects:
    """The subject of a question with who."""
    return anyhow(only(Who()))


def creatures(tags: Sequence[str]) -> Subjects:
    """Animals and vehicles that act by themselves."""
    return anyhow(phrases_with(frozenset(tags), "known"))
