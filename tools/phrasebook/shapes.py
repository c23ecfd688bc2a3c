"""Forms of a clause by the kind of its verb: which tense, negation, question, adverb and time go together."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from tools.phrasebook.choices import Choices, Either, Of, only
from tools.phrasebook.english_words import past
from tools.phrasebook.meaning import Modal, Question, Shape, Tense
from tools.phrasebook.phrases import ADVERBS, times
from tools.phrasebook.tokens import Fixed
from tools.phrasebook.verbs import Verb


class Shapes(NamedTuple):
    """The forms of statements and of questions, and the share of questions."""

    told: Choices[Shape]
    asked: Choices[Shape]
    questions: float


# The times that go with a tense, by their tag in the table of times.
_TIME_TAGS: dict[Tense, str] = {"present": "present", "progressive": "progressive", "past": "past", "future": "future"}
_TIME_TAGS |= {"used to": "habit"}


def _times(tense: Tense) -> tuple[Fixed, ...]:
    return times(_TIME_TAGS[tense]) if tense in _TIME_TAGS else ()


def _tell(tense: Tense, moments: Sequence[Fixed], always_timed: bool = False) -> Either[Shape]:
    """Return statements in a tense: some negated, some with a time at the end or at the beginning."""
    said = Of([] if always_timed else [Shape(tense)])
    denied = Of([] if tense == "used to" else [Shape(tense, negated=True)])
    last = Of([Shape(tense, time=time) for time in moments])
    first = Of([Shape(tense, time=time, time_first=True) for time in moments])
    denied_then = Of([] if tense == "used to" else [Shape(tense, negated=True, time=time) for time in moments])
    return Either((4, said), (1.5, denied), (2, last), (1, first), (0.5, denied_then))


def _ask(question: Question, tenses: Sequence[Tense], negated: bool = False) -> Of[Shape]:
    return Of([Shape(tense, question=question, negated=negated) for tense in tenses])


def _ask_with_time(tenses: Sequence[Tense]) -> Of[Shape]:
    return Of([Shape(tense, question="yes/no", time=time) for tense in tenses for time in _times(tense)])


_DENIABLE: tuple[Modal, ...] = ("want", "can", "must")


def _wish() -> Either[Shape]:
    """Return statements with want, can, must and would like."""
    modals: tuple[Modal, ...] = (*_DENIABLE, "would like")
    return Either(
        (4, Of([Shape(modal=modal) for modal in modals])),
        (1.5, Of([Shape(modal=modal, negated=True) for modal in _DENIABLE])),
        (2, Of([Shape(modal=modal, time=time) for modal in modals for time in times("modal")])),
    )


def _ask_wish() -> Of[Shape]:
    return Of([Shape(modal=modal, question="yes/no") for modal in ("want", "can", "would like")])


def _repeat() -> Of[Shape]:
    return Of([Shape(adverb=adverb) for adverb in ADVERBS])


def aspect(verb: Verb) -> str:
    """The kind of the verb: an "event", or another kind given by its behaviour.

    An "event in one form" is an event whose English present and past look alike ("I read"): only a time
    distinguishes them, so these clauses always have a time.
    """
    for kind in ("state", "point", "accident", "perception", "lasting", "long"):
        if verb.is_a(kind):
            return kind
    head = verb.english[0][0]
    return "event in one form" if past(head) == head else "event"


@functools.cache
def shapes(kind: str, willing: bool = True, asks_when: bool = True) -> Shapes:
    """The forms of a clause.

    Subjects that are not `willing` (a train, a dog) have no forms with want or must. `asks_when` is for
    clauses without a second person: a subject after the verb could be taken for that person ("Quando incontra Anna
    Luca?").
    """
    if kind in _OTHERS:
        told, asked = _OTHERS[kind]()
    else:
        told, asked = _event(kind, willing)
    if asks_when and kind != "state":
        asked = Either((5, asked), (1, _ask("when", ("past",) if kind in _OTHERS else ("present", "past", "future"))))
    return Shapes(told, asked, questions=0.18)


Ways = tuple[Choices[Shape], Choices[Shape]]
"""Forms of statements, and forms of questions."""


def _event(kind: str, willing: bool) -> Ways:
    def moments(tense: Tense) -> tuple[Fixed, ...]:
        return () if kind == "long" else _times(tense)

    one_form = kind == "event in one form"
    told: list[tuple[float, Choices[Shape]]] = [
        (3, _tell("present", moments("present"), always_timed=one_form)),
        (4, _tell("past", moments("past"), always_timed=one_form)),
        (2, _tell("future", moments("future"))),
        (0.7, _tell("used to", moments("used to"))),
        (1.2, _repeat()),
    ]
    asked: list[tuple[float, Choices[Shape]]] = [
        (2, _ask("yes/no", ("present", "past", "future"))),
        (0.8, _ask_with_time(() if kind == "long" else ("present", "past", "future"))),
        (0.6, _ask("why", ("present", "past"))),
        (0.4, _ask("why", ("present", "past"), negated=True)),
    ]
    if kind != "lasting":
        told += [(2, _tell("progressive", moments("progressive"))), (1, _tell("was doing", ()))]
        asked += [(0.7, _ask("yes/no", ("progressive",))), (0.3, _ask("why", ("progressive",)))]
    if willing:
        told += [(2.2, _wish())]
        asked += [(0.8, _ask_wish())]
    return Either(*told), Either(*asked)


def _state() -> Ways:
    told = Either((5, _tell("present", ())), (3, _tell("past", ())))
    return told, Either((2, _ask("yes/no", ("present", "past"))), (1, _ask("why", ("present", "past"))))


def _point() -> Ways:
    told = Either((4, _tell("past", times("past"))), (1, _repeat()))
    return told, Either((2, _ask("yes/no", ("past",))), (1, _ask("why", ("past",))))


def _accident() -> Ways:
    return _tell("past", times("past")), _ask("yes/no", ("past",))


def _perception() -> Ways:
    can = Of([Shape(modal="can"), Shape(modal="can", negated=True)])
    told = Either((3, _tell("present", ())), (4, _tell("past", times("past"))), (1, can))
    return told, Either((4, _ask("yes/no", ("present", "past"))), (1, only(Shape(modal="can", question="yes/no"))))


_OTHERS = {"state": _state, "point": _point, "accident": _accident, "perception": _perception}


@functools.cache
def question_shapes(question: Question, kind: str) -> Shapes:
    """Return the forms of questions with who, what or where."""
    tenses: tuple[Tense, ...] = ("present", "progressive", "past", "future", "was doing")
    if kind == "state":
        tenses = ("present",) if question == "who" else ("present", "past")
    elif kind in _OTHERS:
        tenses = ("past",)
    elif kind == "lasting":
        tenses = ("past", "future")
    elif question == "who":
        tenses = ("progressive", "past", "future")
    return Shapes(Of([]), _ask(question, tenses), questions=1)


@functools.cache
def mood_shapes() -> Shapes:
    """Return the forms for temporary states: tired, hungry, at home."""
    told = Either(
        (5, _tell("present", times("being"))),
        (3, _tell("past", times("was"))),
        (1, _tell("future", times("future"))),
        (1.5, _repeat()),
    )
    asked = Either((2, _ask("yes/no", ("present", "past"))), (1, _ask("why", ("present", "past"))))
    return Shapes(told, asked, questions=0.2)


@functools.cache
def trait_shapes() -> Shapes:
    """Return the forms for the quality or the place of a thing."""
    told = Either((3, _tell("present", ())), (1, _tell("past", ())))
    return Shapes(told, _ask("yes/no", ("present", "past")), questions=0.2)


@functools.cache
def counted_shapes() -> Shapes:
    """The forms of a clause with a number of things; never negated, because that leaves the number open."""
    return Shapes(Of([Shape("present"), Shape("past")]), _ask("yes/no", ("present", "past")), questions=0.2)


@functools.cache
def nature_shapes() -> Shapes:
    """Return the forms for permanent properties: tall, Italian, a doctor."""
    return Shapes(_tell("present", ()), _ask("yes/no", ("present",)), questions=0.2)


@functools.cache
def liking_shapes(in_general: bool) -> Shapes:
    """The forms of liking: things in general for a long time, a single thing at one time."""
    if in_general:
        told = Either((6, _tell("present", ())), (1, _tell("used to", ())))
        return Shapes(told, Either((3, _ask("yes/no", ("present",))), (1, _ask("why", ("present",)))), questions=0.2)
    told = Either((3, _tell("present", ())), (3, _tell("past", ())), (1, _tell("future", ())))
    asked = Either((3, _ask("yes/no", ("present", "past"))), (1, _ask("why", ("present",))))
    return Shapes(told, asked, questions=0.2)
