"""Clauses with to be: somebody or something is tired, a doctor, hungry, on the table, there, or liked."""

from __future__ import annotations

from tools.phrasebook.adjectives import Adjective, adjectives_for, adjectives_with
from tools.phrasebook.choices import Choices, Each, Either, Of, evenly, only
from tools.phrasebook.doing import NO_DETAILS, NO_OBJECT, Details, clauses
from tools.phrasebook.meaning import (
    Clause,
    Degree,
    NounPhrase,
    Preposition,
    Prepositional,
    Quality,
    Shape,
    There,
    Trade,
)
from tools.phrasebook.noun_choices import phrases, phrases_with
from tools.phrasebook.nouns import Noun, nouns, nouns_with
from tools.phrasebook.phrases import circumstances, states
from tools.phrasebook.shapes import (
    Shapes,
    counted_shapes,
    liking_shapes,
    mood_shapes,
    nature_shapes,
    trait_shapes,
)
from tools.phrasebook.subjects import acquaintances, anyhow, people
from tools.phrasebook.verbs import BE, BE_IN_A_STATE, LIKE

_ON, _UNDER, _IN = Preposition("on", "su"), Preposition("under", "sotto"), Preposition("in", "in")
_BESIDE = (
    Preposition("behind", "dietro"),
    Preposition("near", "vicino a"),
    Preposition("next to", "accanto a"),
    Preposition("in front of", "davanti a"),
)


def _tags(*tags: str) -> frozenset[str]:
    return frozenset(tags)


def qualities(adjectives: tuple[Adjective, ...]) -> Choices[Details]:
    """Return the adjectives that can follow "to be"; gradable adjectives also with "very" and "too"."""

    def qualify(adjective: Adjective, degree: Degree) -> Details:
        return (Quality(adjective, degree),)

    degrees: Of[Degree] = Of(["very", "too"])
    gradable = Of([adjective for adjective in adjectives if adjective.gradable])
    return Either((3, Each(qualify, Of(adjectives), only(""))), (1, Each(qualify, gradable, degrees)))


def people_are() -> Choices[Clause]:
    """Clauses about people: their mood, trait, profession or place, or a state such as hunger."""
    trades: list[Details] = [(Trade(noun),) for noun in nouns_with(_tags("trade", "peer"))]
    somewhere: list[Details] = [(place.at,) for place in circumstances() if place.tags & _tags("go", "living")]
    moods, traits = qualities(adjectives_with("mood")), qualities(adjectives_with("trait"))
    return Either(
        (4, clauses(BE, people(), NO_OBJECT, moods, mood_shapes())),
        (3, clauses(BE, people(), NO_OBJECT, traits, nature_shapes())),
        (2, clauses(BE, acquaintances(), NO_OBJECT, Of(trades), nature_shapes())),
        (2, clauses(BE, people(), NO_OBJECT, Of(somewhere), mood_shapes())),
        (3, clauses(BE_IN_A_STATE, people(), Of(states()), NO_DETAILS, mood_shapes())),
        (0.5, clauses(BE, people(), NO_OBJECT, NO_DETAILS, _asking_where())),
    )


def _asking_where() -> Shapes:
    return Shapes(Of([]), Of([Shape("present", question="where"), Shape("past", question="where")]), questions=1)


def things_are() -> Choices[Clause]:
    """Clauses about things: their quality or their place."""
    things = _tags("item")
    subjects = anyhow(phrases_with(things, "known", described=False))
    return Either(
        (5, evenly([_thing_is(noun) for noun in nouns() if _is_described(noun)])),
        (2, clauses(BE, subjects, NO_OBJECT, _spots(), trait_shapes())),
        (0.6, clauses(BE, subjects, NO_OBJECT, NO_DETAILS, _asking_where())),
    )


def _predicates(noun: Noun) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in adjectives_for(noun) if "attribute" not in adjective.tags)


def _is_described(noun: Noun) -> bool:
    return not noun.human and bool(_predicates(noun))


def _thing_is(noun: Noun) -> Choices[Clause]:
    in_general = noun.tags & _tags("subject", "language")
    subjects = anyhow(phrases(noun, "general" if in_general else "known", described=False))
    fitting = _predicates(noun) + (adjectives_with("weary") if "animal" in noun.tags else ())
    return clauses(BE, subjects, NO_OBJECT, qualities(fitting), trait_shapes())


def _located(preposition: Choices[Preposition], landmarks: Choices[NounPhrase]) -> Choices[Details]:
    def locate(preposition: Preposition, phrase: NounPhrase) -> Details:
        return (Prepositional(preposition, phrase),)

    return Each(locate, preposition, landmarks)


def _the(*tags: str) -> Of[NounPhrase]:
    return Of([NounPhrase(noun, "the") for noun in nouns_with(_tags(*tags))])


def _spots() -> Choices[Details]:
    """Places for small things: on or under furniture, in containers."""
    return Either(
        (3, _located(Of([_ON, _UNDER]), _the("surface"))), (2, _located(only(_IN), _the("container", "luggage")))
    )


def there_is() -> Choices[Clause]:
    """Clauses with "there is": a thing or a person is at a place."""
    kitchen = Either(
        (1, _located(only(_ON), Of(_the("surface").members[:1]))), (1, _located(only(_IN), _the("fridge")))
    )
    outside: list[Details] = [(place.at,) for place in circumstances() if place.tags & _tags("outdoors", "playing")]
    inside: list[Details] = [(place.at,) for place in circumstances() if place.tags & _tags("meeting", "staffed")]
    near = _located(Of(_BESIDE), _the("landmark"))
    return Either(
        (2, _found("item", _spots())),
        (1, _found("food", kitchen)),
        (0.5, _there(phrases_with(_tags("drink"), "new"), kitchen, trait_shapes())),
        (1.5, _found("animal", Either((1, near), (1, Of(outside))))),
        (1.5, _found("role", Either((1, near), (1, Of(inside))))),
    )


def _found(tag: str, spots: Choices[Details]) -> Choices[Clause]:
    countable = [noun for noun in nouns_with(_tags(tag)) if noun.tags.isdisjoint(("mass", "pair"))]
    counted = evenly([phrases(noun, "counted") for noun in countable])
    return Either(
        (4, _there(phrases_with(_tags(tag), "new"), spots, trait_shapes())),
        (1, _there(counted, spots, counted_shapes())),
    )


def _there(found: Choices[NounPhrase], spots: Choices[Details], shaped: Shapes) -> Choices[Clause]:
    return clauses(BE, anyhow(Each(There, found)), NO_OBJECT, spots, shaped)


def liked() -> Choices[Clause]:
    """Clauses in which people like something, in general ("coffee") or in particular ("this book")."""
    general = phrases_with(_tags("food", "drink", "subject", "pet", "farm"), "general")
    particular = phrases_with(_tags("text", "show", "sung", "clothes", "vehicle", "furniture", "building"), "known")
    return Either(
        (1, clauses(LIKE, people(), general, NO_DETAILS, liking_shapes(in_general=True))),
        (1.5, clauses(LIKE, people(), particular, NO_DETAILS, liking_shapes(in_general=False))),
    )
