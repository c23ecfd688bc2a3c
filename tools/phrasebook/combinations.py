"""Which words a sentence combines, and which of these pairs are reserved for the test part.

Whether a pair is reserved depends only on its name, not on the seed or the size of the corpus.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator

from tools.phrasebook.meaning import (
    Anaphor,
    Because,
    Clause,
    Couple,
    Detail,
    NounPhrase,
    Object,
    Prepositional,
    Quality,
    Sentence,
    Subject,
    There,
)
from tools.phrasebook.phrases import Name
from tools.phrasebook.tokens import Fixed

_ONE_IN = 20


def combinations(sentence: Sentence) -> tuple[str, ...]:
    """The pairs of content words that are combined, as "eat+apple", "apple+red", "Maria+eat"."""
    if isinstance(sentence, Because):
        return (*_of_clause(sentence.main), *_of_clause(sentence.reason))
    return tuple(_of_clause(sentence))


@functools.cache
def is_held_out(combination: str) -> bool:
    """Whether the pair is reserved for the test part."""
    return zlib.crc32(combination.encode()) % _ONE_IN == 0


def _of_clause(clause: Clause) -> Iterator[str]:
    verb = clause.verb.name
    if isinstance(clause.object, Fixed):
        verb = f"{verb} {clause.object.name}"
    else:
        yield from (f"{verb}+{word}" for word in _heads(clause.object))
        yield from _descriptions(clause.object)
    subjects = _heads(clause.subject)
    yield from _descriptions(clause.subject)
    # What follows to be says something of the subject, what follows another verb of what is done.
    anchors = subjects if verb == "be" else [verb]
    yield from (f"{anchor}+{_head(detail)}" for detail in clause.details for anchor in anchors)
    for detail in clause.details:
        if isinstance(detail, Prepositional):
            yield from _descriptions(detail.phrase)
    if verb != "be":
        yield from (f"{subject}+{verb}" for subject in subjects)


def _heads(thing: Subject | Object | None) -> list[str]:
    """The content words that name a person or a thing; pronouns are not among them."""
    if isinstance(thing, NounPhrase):
        return [thing.noun.english]
    if isinstance(thing, Name):
        return [thing.text]
    if isinstance(thing, Couple):
        return [thing.first.text, thing.second.text]
    if isinstance(thing, There):
        return _heads(thing.phrase)
    return _heads(thing.antecedent) if isinstance(thing, Anaphor) else []


def _head(detail: Detail) -> str:
    if isinstance(detail, Fixed):
        return detail.name
    if isinstance(detail, Prepositional):
        return _heads(detail.phrase)[0]
    return detail.adjective.english if isinstance(detail, Quality) else detail.noun.english


def _descriptions(thing: Subject | Object | None) -> Iterator[str]:
    phrase = thing.phrase if isinstance(thing, There) else thing
    if isinstance(phrase, NounPhrase):
        yield from (f"{phrase.noun.english}+{adjective.english}" for adjective in phrase.adjectives)
