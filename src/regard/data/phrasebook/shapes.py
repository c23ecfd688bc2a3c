"""How a clause may be put, by what its verb tells: which tense, denial, question, adverb and time go together."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from regard.data.phrasebook.choices import Choices, Either, Of
from regard.data.phrasebook.english_words import past
from regard.data.phrasebook.meaning import Modal, Question, Shape, Tense
from regard.data.phrasebook.phrases import ADVERBS, times
from regard.data.phrasebook.tokens import Fixed
from regard.data.phrasebook.verbs import Verb

# The times that go with a tense, by their tag in the table of times.
_TIME_TAGS: dict[Tense, str] = {"present": "present", "progressive": "progressive", "past": "past", "future": "future"}
_TIME_TAGS |= {"used to": "habit"}


def _times(tense: Tense) -> tuple[Fixed, ...]:
    return times(_TIME_TAGS[tense]) if tense in _TIME_TAGS else ()


def _tell(tense: Tense, moments: Sequence[Fixed], always_timed: bool = False) -> Either[Shape]:
    """Statements in a tense, some denied, some with a time at the end or at the beginning."""
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


def _wish() -> Either[Shape]:
    """What somebody wants, can, must or would like to do."""
    deniable: tuple[Modal, ...] = ("want", "can", "must")
    return Either(
        (4, Of([Shape(modal=modal) for modal in (*deniable, "would like")])),
        (1.5, Of([Shape(modal=modal, negated=True) for modal in deniable])),
        (2, Of([Shape(modal=modal, time=time) for modal in (*deniable, "would like") for time in times("modal")])),
        (1.5, Of([Shape(modal=modal, question="yes/no") for modal in ("want", "can", "would like")])),
    )


def _repeat() -> Of[Shape]:
    return Of([Shape(adverb=adverb) for adverb in ADVERBS])


def aspect(verb: Verb) -> str:
    """What the verb tells: an "event", or another kind that its behaviour names.

    An "event in one form" is an event whose English present and past look alike ("I read"): only a time tells them
    apart, so it is never told without one.
    """
    for kind in ("state", "point", "accident", "perception", "lasting"):
        if verb.is_a(kind):
            return kind
    head = verb.english[0][0]
    return "event in one form" if past(head) == head else "event"


@functools.cache
def shapes(kind: str, willing: bool = True) -> Choices[Shape]:
    """The ways to put a clause; what is not `willing` (a train, a dog) neither wants nor must."""
    if kind in ("event", "event in one form", "lasting"):
        return _event(one_form=kind == "event in one form", lasting=kind == "lasting", willing=willing)
    return {"state": _state, "point": _point, "accident": _accident, "perception": _perception}[kind]()


def _event(one_form: bool, lasting: bool, willing: bool) -> Choices[Shape]:
    told: list[tuple[float, Choices[Shape]]] = [
        (3, _tell("present", times("present"), always_timed=one_form)),
        (4, _tell("past", times("past"), always_timed=one_form)),
        (2, _tell("future", times("future"))),
        (0.7, _tell("used to", times("habit"))),
        (1.2, _repeat()),
    ]
    if not lasting:
        told += [(2, _tell("progressive", times("progressive"))), (1, _tell("was doing", ()))]
    if willing:
        told += [(2.5, _wish())]
    asked: list[tuple[float, Choices[Shape]]] = [
        (2, _ask("yes/no", ("present", "past", "future") if lasting else ("present", "progressive", "past", "future"))),
        (0.7, _ask_with_time(("present", "past", "future"))),
        (0.6, _ask("why", ("present", "past") if lasting else ("present", "progressive", "past"))),
        (0.4, _ask("why", ("present", "past"), negated=True)),
        (0.7, _ask("when", ("present", "past", "future"))),
    ]
    return Either(*told, *asked)


def _state() -> Choices[Shape]:
    return Either(
        (5, _tell("present", ())),
        (3, _tell("past", ())),
        (2, _ask("yes/no", ("present", "past"))),
        (1, _ask("why", ("present", "past"))),
    )


def _point() -> Choices[Shape]:
    asked = Either((2, _ask("yes/no", ("past",))), (1, _ask("why", ("past",))), (1, _ask("when", ("past",))))
    return Either((4, _tell("past", times("past"))), (1, _repeat()), (2, asked))


def _accident() -> Choices[Shape]:
    return Either((6, _tell("past", times("past"))), (1, _ask("yes/no", ("past",))), (1, _ask("when", ("past",))))


def _perception() -> Choices[Shape]:
    return Either(
        (3, _tell("present", ())),
        (4, _tell("past", times("past"))),
        (1, Of([Shape(modal="can"), Shape(modal="can", negated=True), Shape(modal="can", question="yes/no")])),
        (2, _ask("yes/no", ("present", "past"))),
        (0.5, _ask("when", ("past",))),
    )


@functools.cache
def question_shapes(question: Question, kind: str) -> Choices[Shape]:
    """The ways to ask who, what or where."""
    if kind == "state":
        return _ask(question, ("present",) if question == "who" else ("present", "past"))
    if kind in ("point", "accident", "perception"):
        return _ask(question, ("past",))
    if kind == "lasting":
        return _ask(question, ("past", "future"))
    if question == "who":
        return _ask(question, ("progressive", "past", "future"))
    return _ask(question, ("present", "progressive", "past", "future", "was doing"))


@functools.cache
def mood_shapes() -> Choices[Shape]:
    """The ways to say what somebody is or has for a while: tired, hungry, at home."""
    return Either(
        (5, _tell("present", times("being"))),
        (3, _tell("past", times("was"))),
        (1, _tell("future", times("future"))),
        (1.5, _repeat()),
        (2, _ask("yes/no", ("present", "past"))),
        (1, _ask("why", ("present", "past"))),
    )


@functools.cache
def trait_shapes() -> Choices[Shape]:
    """The ways to say what something is like, or where it is."""
    return Either((6, _tell("present", ())), (2, _tell("past", ())), (2, _ask("yes/no", ("present", "past"))))


@functools.cache
def nature_shapes() -> Choices[Shape]:
    """The ways to say what somebody is for good: tall, Italian, a doctor."""
    return Either((3, _tell("present", ())), (1, _ask("yes/no", ("present",))))


@functools.cache
def liking_shapes(in_general: bool) -> Choices[Shape]:
    """The ways to like: a thing in general is liked for long, one thing when it is met."""
    asked = Either((3, _ask("yes/no", ("present",))), (1, _ask("why", ("present",))))
    if in_general:
        return Either((6, _tell("present", ())), (1, _tell("used to", ())), (1, asked))
    past_asked = _ask("yes/no", ("past",))
    told = Either((3, _tell("present", ())), (3, _tell("past", ())), (1, _tell("future", ())))
    return Either((7, told), (1.3, asked), (0.7, past_asked))
