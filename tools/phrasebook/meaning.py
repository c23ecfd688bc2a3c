"""The meaning of a sentence, independent of the language. Both sides of a pair are written from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tools.phrasebook.adjectives import Adjective
from tools.phrasebook.nouns import Noun
from tools.phrasebook.phrases import Name
from tools.phrasebook.tokens import Fixed
from tools.phrasebook.verbs import Verb

Tense = Literal["present", "progressive", "past", "was doing", "used to", "future"]
Modal = Literal["", "want", "can", "must", "would like"]
Question = Literal["", "yes/no", "who", "what", "where", "when", "why"]
Degree = Literal["", "very", "too"]

GENERAL = "general"
"""The determiner of things in general: English has none, Italian the article ("I like coffee", "Mi piace il caffè")."""
OWN = "own"
"""The determiner of what the subject owns: a possessive in English, not in Italian ("my hands", "Mi lavo le mani")."""
POSSESSIVES = ("my", "your", "his", "her", "our", "their")


class Features(NamedTuple):
    """Person, number and gender with which a verb or an adjective agrees."""

    person: int
    plural: bool
    feminine: bool


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A personal pronoun. To be unique in Italian, "you" is singular, and "I", "we" and "they" are masculine."""

    english: str
    english_object: str
    italian: str
    clitic: str
    """The Italian object pronoun before the verb."""
    dative: str
    """The Italian dative before piacere."""
    features: Features


I = Pronoun("I", "me", "io", "mi", "mi", Features(1, False, False))
YOU = Pronoun("you", "you", "tu", "ti", "ti", Features(2, False, False))
HE = Pronoun("he", "him", "lui", "lo", "gli", Features(3, False, False))
SHE = Pronoun("she", "her", "lei", "la", "le", Features(3, False, True))
WE = Pronoun("we", "us", "noi", "ci", "ci", Features(1, True, False))
THEY = Pronoun("they", "them", "loro", "li", "a loro", Features(3, True, False))
PRONOUNS = (I, YOU, HE, SHE, WE, THEY)


@dataclass(frozen=True, slots=True)
class Who:
    """The subject of "Who ate the apple?"."""


@dataclass(frozen=True, slots=True)
class Couple:
    """Two people: "Maria and Luca"."""

    first: Name
    second: Name


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """A noun with its determiner and adjectives."""

    noun: Noun
    determiner: str
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()

    @property
    def feminine(self) -> bool:
        """Whether the noun is feminine in Italian, in this number (l'uovo, le uova)."""
        return self.noun.feminine_plural if self.plural else self.noun.feminine


@dataclass(frozen=True, slots=True)
class There:
    """The subject of "There is a book on the table"."""

    phrase: NounPhrase


@dataclass(frozen=True, slots=True)
class Anaphor:
    """A pronoun that refers to a person or thing named before: "because it was too tired"."""

    antecedent: Pronoun | Name | Couple | NounPhrase


Subject = Pronoun | Who | Name | Couple | NounPhrase | There | Anaphor


@dataclass(frozen=True, slots=True)
class Quality:
    """An adjective after to be: "is very tired"."""

    adjective: Adjective
    degree: Degree = ""


@dataclass(frozen=True, slots=True)
class Trade:
    """A noun after to be that agrees with the subject: "is a doctor", "è una dottoressa"."""

    noun: Noun


class Preposition(NamedTuple):
    """A preposition in both languages; the last Italian word contracts with the article ("accanto al")."""

    english: str
    italian: str


@dataclass(frozen=True, slots=True)
class Prepositional:
    """A preposition with its noun or name: "under the bed", "with my friends"."""

    preposition: Preposition
    phrase: NounPhrase


Detail = Fixed | Prepositional | Quality | Trade
Object = NounPhrase | Name | Pronoun | Fixed


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of a clause: tense, negation, question."""

    tense: Tense = "present"
    modal: Modal = ""
    negated: bool = False
    question: Question = ""
    adverb: str = ""
    time: Fixed | None = None
    time_first: bool = False

    @property
    def negative(self) -> bool:
        """Whether it is negated, with "not" or with "never"."""
        return self.negated or self.adverb == "never"


@dataclass(frozen=True, slots=True)
class Clause:
    """Subject, verb, object, place and time."""

    subject: Subject
    verb: Verb
    object: Object | None = None
    details: tuple[Detail, ...] = ()
    shape: Shape = field(default_factory=Shape)


@dataclass(frozen=True, slots=True)
class Because:
    """A clause and its reason."""

    main: Clause
    reason: Clause


Sentence = Clause | Because


def features(subject: Subject) -> Features:
    """Person, number and Italian gender of a subject."""
    if isinstance(subject, Pronoun):
        return subject.features
    if isinstance(subject, Anaphor):
        return features(subject.antecedent)
    if isinstance(subject, There):
        return features(subject.phrase)
    if isinstance(subject, Couple):
        return Features(3, True, subject.first.feminine and subject.second.feminine)
    if isinstance(subject, NounPhrase):
        return Features(3, subject.plural or "pair" in subject.noun.tags, subject.feminine)
    return Features(3, False, isinstance(subject, Name) and subject.feminine)
