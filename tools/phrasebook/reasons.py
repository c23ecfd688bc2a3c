"""Sentences with a reason, in which a pronoun refers to a person or thing named before.

"The animal didn't cross the street because it was too tired" and "... because it was too wide" differ in Italian by
more than their last word: stanco is the animal, larga the street.
"""

from __future__ import annotations

from tools.phrasebook.adjectives import Adjective, adjectives_for, adjectives_with
from tools.phrasebook.choices import Choices, Each, Either, Of, evenly, only
from tools.phrasebook.doing import NO_DETAILS, NO_OBJECT, clauses, places
from tools.phrasebook.meaning import (
    Anaphor,
    Because,
    Clause,
    Couple,
    Degree,
    NounPhrase,
    Object,
    Pronoun,
    Quality,
    Shape,
)
from tools.phrasebook.noun_choices import phrases, phrases_with
from tools.phrasebook.nouns import Noun, nouns_with
from tools.phrasebook.phrases import Name, states
from tools.phrasebook.shapes import Shapes
from tools.phrasebook.subjects import anyhow, people
from tools.phrasebook.tokens import Fixed
from tools.phrasebook.verbs import BE, BE_IN_A_STATE, Verb, bare_verbs, thing_verb

_NOT_DONE = Shapes(Of([Shape("past", negated=True), Shape(modal="can", negated=True)]), Of([]), questions=0)
_DONE = Shapes(Of([Shape("past"), Shape("progressive")]), Of([]), questions=0)
_DEGREES: Either[Degree] = Either((3, only("too")), (1, only("very")))

# What is not bought, eaten, read, and because of which fault: the tags of such things, and adjectives.
_REFUSED = {
    "buy": ("clothes vehicle machine furniture instrument luggage", "expensive big small old heavy"),
    "eat": ("hot", "hot cold"),
    "drink": ("drink", "hot cold"),
    "read": ("long", "long boring strange"),
    "watch": ("show watched", "long boring"),
    "carry": ("luggage", "heavy big"),
    "take": ("transport", "crowded"),
    "understand": ("lesson", "difficult"),
}
_OBSTACLES = "wide long dangerous crowded deep dark muddy"


def reasons() -> Choices[Because]:
    """Sentences with "because": the reason why a person did, or did not do, something."""
    return Either((3, _crossing()), (3, _staying_in()), (3, _refusing()), (1, _satisfying()))


def _reason(
    main: Clause,
    antecedent: Pronoun | Name | Couple | NounPhrase,
    verb: Verb,
    thing: Fixed | None = None,
    quality: Quality | None = None,
) -> Because:
    """Make a sentence with a reason, in the past tense if the main clause is in the past, otherwise in the present."""
    shape = Shape("past" if main.shape.tense == "past" else "present")
    return Because(main, Clause(Anaphor(antecedent), verb, thing, (quality,) if quality else (), shape))


def _because_of_subject(main: Clause, adjective: Adjective, degree: Degree) -> Because:
    assert isinstance(main.subject, (Pronoun, Name, Couple, NounPhrase))
    return _reason(main, main.subject, BE, quality=Quality(adjective, degree))


def _because_of_object(main: Clause, adjective: Adjective, degree: Degree) -> Because:
    assert isinstance(main.object, NounPhrase)
    return _reason(main, main.object, BE, quality=Quality(adjective, degree))


def _because_of_state(main: Clause, state: Fixed) -> Because:
    assert isinstance(main.subject, (Pronoun, Name, Couple, NounPhrase))
    return _reason(main, main.subject, BE_IN_A_STATE, thing=state)


def _faults(noun: Noun, names: str) -> Of[Adjective]:
    return Of([adjective for adjective in adjectives_for(noun) if adjective.english in names.split()])


def _crossing() -> Choices[Because]:
    """An animal does not cross the street: "it" is too tired (the animal) or too wide (the street)."""
    cross = thing_verb("cross")
    animals = anyhow(phrases_with(frozenset(("animal",)), "one", described=False))

    def not_crossed(road: Noun) -> Choices[Clause]:
        return clauses(cross, animals, phrases(road, "one", described=False), NO_DETAILS, _NOT_DONE)

    roads = nouns_with(cross.objects)
    tired = evenly(
        [Each(_because_of_subject, not_crossed(road), Of(adjectives_with("weary")), _DEGREES) for road in roads]
    )
    barred = evenly(
        [Each(_because_of_object, not_crossed(road), _faults(road, _OBSTACLES), _DEGREES) for road in roads]
    )
    return Either((1, tired), (1, barred))


def _staying_in() -> Choices[Because]:
    """Somebody does not go out, or does not work, because of a mood."""
    outings = [verb for verb in bare_verbs() if verb.is_a("outing")]
    optional = [
        Either((1, places(verb, manners=False)), (1, NO_DETAILS if verb.is_a("alone") else Of([]))) for verb in outings
    ]
    missed = evenly(
        [clauses(verb, people(), NO_OBJECT, where, _NOT_DONE) for verb, where in zip(outings, optional, strict=True)]
    )
    feelings = Of([state for state in states() if state.name in ("sleepy", "cold", "hot", "in a hurry", "afraid")])
    return Either(
        (3, Each(_because_of_subject, missed, Of(adjectives_with("excuse")), _DEGREES)),
        (1, Each(_because_of_state, missed, feelings)),
    )


def _refusing() -> Choices[Because]:
    """Somebody does not buy, eat or read something because something is wrong with it."""
    return evenly([_refusals(thing_verb(verb), tags, faults) for verb, (tags, faults) in _REFUSED.items()])


def _refusals(verb: Verb, tags: str, faults: str) -> Choices[Because]:
    def refused(noun: Noun) -> Choices[Because]:
        things: Choices[Object] = phrases(noun, "known", described=False)
        return Each(
            _because_of_object, clauses(verb, people(), things, NO_DETAILS, _NOT_DONE), _faults(noun, faults), _DEGREES
        )

    fitting = [noun for noun in nouns_with(frozenset(tags.split())) if noun.tags & verb.objects]
    faulty = [noun for noun in fitting if _faults(noun, faults).size]
    return evenly([refused(noun) for noun in faulty])


def _satisfying() -> Choices[Because]:
    """Somebody eats because of hunger, or drinks because of thirst."""

    def satisfied(verb: Verb, need: str) -> Choices[Because]:
        things = phrases_with(verb.objects, "any", described=False)
        state = Of([state for state in states() if state.name == need])
        return Each(_because_of_state, clauses(verb, people(), things, NO_DETAILS, _DONE), state)

    return Either((1, satisfied(thing_verb("eat"), "hungry")), (1, satisfied(thing_verb("drink"), "thirsty")))
