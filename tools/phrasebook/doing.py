"""Clauses in which somebody does something: with a thing, with a person, or alone."""

from __future__ import annotations

from collections.abc import Sequence

from tools.phrasebook.choices import Choices, Each, Either, Of, evenly, only
from tools.phrasebook.meaning import (
    HE,
    PRONOUNS,
    SHE,
    THEY,
    YOU,
    Clause,
    Detail,
    NounPhrase,
    Object,
    Preposition,
    Prepositional,
    Pronoun,
    Shape,
    Subject,
)
from tools.phrasebook.noun_choices import phrases_with
from tools.phrasebook.phrases import circumstances, idioms
from tools.phrasebook.shapes import Shapes, aspect, question_shapes, shapes
from tools.phrasebook.subjects import (
    Subjects,
    acquaintances,
    companions,
    couples,
    creatures,
    everybody,
    kin,
    people,
    pronouns,
    roles,
    strangers,
    who,
)
from tools.phrasebook.tokens import Fixed
from tools.phrasebook.verbs import Verb, bare_verbs, person_verbs, thing_verbs

WITH = Preposition("with", "con")
TO = Preposition("to", "a")

Details = tuple[Detail, ...]
NO_OBJECT: Of[None] = only(None)
NO_DETAILS: Of[Details] = only(())
_POLICIES = ("the", "one", "new", "plain", "single", "own", "bare", "general")


def clauses(
    verb: Verb,
    subjects: Subjects,
    objects: Choices[Object | None],
    details: Choices[Details],
    shaped: Shapes,
) -> Choices[Clause]:
    """Every clause with the verb that the parts can form."""

    def make(subject: Subject, thing: Object | None, circumstances: Details, shape: Shape) -> Clause:
        return Clause(subject, verb, thing, circumstances, shape)

    told = Each(make, subjects.told, objects, details, shaped.told)
    asked = Each(make, subjects.asked, objects, details, shaped.asked)
    return Either((1 - shaped.questions, told), (shaped.questions, asked))


def places(verb: Verb, manners: bool = True) -> Of[Details]:
    """Return the places that fit the verb and, with `manners`, the manners."""
    rest, motion = frozenset(verb.listed("at:")), frozenset(verb.listed("to:"))
    fitting = [place for place in circumstances() if manners or place.is_place]
    at: list[Details] = [(place.at,) for place in fitting if place.tags & rest]
    to: list[Details] = [(place.to,) for place in fitting if place.tags & motion]
    return Of(at + to)


def _company(verb: Verb) -> Choices[Details]:
    def accompany(phrase: NounPhrase) -> Details:
        return (Prepositional(WITH, phrase),)

    return Each(accompany, companions()) if verb.is_a("with") else Of([])


def _circumstances(verb: Verb, optional: bool) -> Choices[Details]:
    where, company = places(verb), _company(verb)
    both = Each(lambda place, others: place + others, where, company)
    nothing = NO_DETAILS if optional else Of([])
    return Either((4, nothing), (3.5, where), (1.2, company), (0.6, both))


def _recipients(verb: Verb) -> Choices[Details]:
    def address(phrase: NounPhrase) -> Details:
        return (Prepositional(TO, phrase),)

    somebody = Either((2, Each(address, companions())), (1, Each(address, roles())))
    return somebody if verb.is_a("whom") else Either((1, somebody), (1, NO_DETAILS))


def things_done() -> Choices[Clause]:
    """Clauses in which a person does something with a thing."""
    return evenly([_done_with_things(verb) for verb in thing_verbs()])


def _done_with_things(verb: Verb) -> Choices[Clause]:
    kind = aspect(verb)
    policy = next((policy for policy in _POLICIES if verb.is_a(policy)), "any")
    things = phrases_with(verb.objects, policy)
    addressed = verb.is_a("to") or verb.is_a("whom")
    somebody = (
        acquaintances() if addressed else people()
    )  # those who are addressed are others: friends, or known by trade
    details = _recipients(verb) if addressed else _circumstances(verb, optional=True)
    shaped = shapes(kind, asks_when=not addressed)
    parts: list[tuple[float, Choices[Clause]]] = [(10, clauses(verb, somebody, things, details, shaped))]
    if verb.is_a("what"):
        parts.append((0.8, clauses(verb, somebody, NO_OBJECT, NO_DETAILS, question_shapes("what", kind))))
    if verb.is_a("where"):
        parts.append((0.8, clauses(verb, somebody, things, NO_DETAILS, question_shapes("where", kind))))
    if policy != "own" and not verb.is_a("whom"):
        parts.append((0.6, clauses(verb, who(), things, NO_DETAILS, question_shapes("who", kind))))
    if by := verb.listed("by:"):
        parts.append((3, clauses(verb, creatures(by), things, NO_DETAILS, shapes(kind, willing=False))))
    return Either(*parts)


def people_met() -> Choices[Clause]:
    """Clauses in which a person does something with another person."""
    return evenly([_done_with_people(verb) for verb in person_verbs()])


def _done_with_people(verb: Verb) -> Choices[Clause]:
    kind = aspect(verb)
    where = Either((4, NO_DETAILS), (2, places(verb)))
    friends: Choices[Object] = Either((2, companions()), (1, roles()))
    family: Choices[Object] = Either((1, kin()), (1, everybody()))
    parts: list[tuple[float, Choices[Clause]]] = [
        (5, clauses(verb, acquaintances(), friends, where, shapes(kind, asks_when=False))),
        (5, clauses(verb, strangers(), family, where, shapes(kind, asks_when=False))),
        (1, clauses(verb, who(), Either((1, friends), (1, family)), NO_DETAILS, question_shapes("who", kind))),
    ]
    if verb.is_a("where"):
        parts.append(
            (
                1,
                clauses(
                    verb, pronouns(), Either((1, friends), (1, family)), NO_DETAILS, question_shapes("where", kind)
                ),
            )
        )
    if not verb.preposition:
        parts.append((5, evenly([_done_with_pronoun(verb, pronoun) for pronoun in PRONOUNS])))
    return Either(*parts)


def _done_with_pronoun(verb: Verb, pronoun: Pronoun) -> Choices[Clause]:
    """Clauses with a pronoun as the object, e.g. "him"; never with I and me, or we and us, in one clause."""
    person = pronoun.features.person
    named: Choices[Subject] = Either((3, everybody()), (1, couples()), (2, kin()), (2, roles()))

    def anybody(pronouns: Sequence[Pronoun]) -> Choices[Subject]:
        others = Of([other for other in pronouns if person == 3 or other.features.person != person])
        return Either((1, others), (1, named))

    subjects = Subjects(anybody(PRONOUNS), anybody([YOU, HE, SHE, THEY]))
    return clauses(verb, subjects, only(pronoun), NO_DETAILS, shapes(aspect(verb), asks_when=False))


def done_alone() -> Choices[Clause]:
    """Clauses in which a person does something without an object."""
    return evenly([_done_without(verb, None) for verb in bare_verbs()])


def done_as_they_say() -> Choices[Clause]:
    """Clauses with an idiom as the verb."""
    return evenly([_done_without(verb, rest) for verb, rest in idioms()])


def _done_without(verb: Verb, rest: Fixed | None) -> Choices[Clause]:
    kind = aspect(verb)
    fixed = only(rest)
    details = _circumstances(verb, optional=verb.is_a("alone"))
    parts: list[tuple[float, Choices[Clause]]] = [(10, clauses(verb, people(), fixed, details, shapes(kind)))]
    if verb.is_a("where"):
        parts.append((1, clauses(verb, people(), fixed, NO_DETAILS, question_shapes("where", kind))))
    parts.append((0.5, clauses(verb, who(), fixed, details, question_shapes("who", kind))))
    if by := verb.listed("by:"):
        parts.append((2, clauses(verb, creatures(by), fixed, details, shapes(kind, willing=False))))
    return Either(*parts)
