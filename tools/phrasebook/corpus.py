"""Sentences become pairs, and pairs the three parts of the corpus."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from regard.data.builtin import Roles
from regard.errors import SettingsError
from tools.phrasebook.adjectives import adjective
from tools.phrasebook.combinations import combinations, is_held_out
from tools.phrasebook.english import english
from tools.phrasebook.grammar import grammar
from tools.phrasebook.italian import italian
from tools.phrasebook.meaning import Anaphor, Because, Clause, I, NounPhrase, Quality, Sentence, Shape
from tools.phrasebook.nouns import noun
from tools.phrasebook.phrase import Phrase, Phrasebook
from tools.phrasebook.phrases import idiom
from tools.phrasebook.tokens import Token, align, finish, write
from tools.phrasebook.verbs import BE, thing_verb

# Of the statements, how many end in a full stop; of the sentences, how many prefer "didn't" and "I'm".
_WITH_STOP, _CONTRACTED = 0.9, 0.7
# The test part is chosen from this many times its size, so that it needs no word that training has not shown.
_CANDIDATES = 1.25


class _Draft(NamedTuple):
    """A pair and the words of its two sides."""

    phrase: Phrase
    source: list[str]
    target: list[str]


def make_phrase(sentence: Sentence, stop: bool = True, contracted: bool = True) -> Phrase:
    """Write a sentence in both languages, with or without a full stop (questions always have a question mark)."""
    return _say(sentence, combinations(sentence), stop, contracted).phrase


def _say(sentence: Sentence, together: tuple[str, ...], stop: bool, contracted: bool) -> _Draft:
    main = sentence.main if isinstance(sentence, Because) else sentence
    mark = "?" if main.shape.question else "." if stop else ""
    source, target = english(sentence, contracted), italian(sentence)
    finish(source, mark)
    finish(target, mark)
    phrase = Phrase(write(source), write(target), align(source, target), _roles(source), _roles(target), together)
    return _Draft(phrase, [token.text for token in source], [token.text for token in target])


def _roles(tokens: list[Token]) -> Roles:
    subject, verb, thing = [], [], []
    for i, (_, _, roles) in enumerate(tokens):
        if "s" in roles:
            subject.append(i)
        if "v" in roles:
            verb.append(i)
        if "o" in roles:
            thing.append(i)
    return Roles(tuple(subject), tuple(verb), tuple(thing))


def lecture_phrases() -> tuple[Phrase, ...]:
    """The sentences of the lectures, word for word; the training part begins with them."""
    animal, street = NounPhrase(noun("animal"), "the"), NounPhrase(noun("street"), "the")
    crossing = Clause(animal, thing_verb("cross"), street, shape=Shape("past", negated=True))
    tired, wide = (Quality(adjective(name), "too") for name in ("tired", "wide"))
    return (
        make_phrase(Clause(I, BE, details=(Quality(adjective("trendy")),)), stop=False, contracted=False),
        make_phrase(Clause(I, *idiom("take a shower")), stop=False),
        make_phrase(Because(crossing, Clause(Anaphor(animal), BE, details=(tired,), shape=Shape("past")))),
        make_phrase(Because(crossing, Clause(Anaphor(street), BE, details=(wide,), shape=Shape("past")))),
    )


def build(seed: int, train: int, valid: int, test: int) -> Phrasebook:
    """Draw the corpus; see `tools.phrasebook.phrasebook`."""
    for name, size in (("train", train), ("valid", valid), ("test", test)):
        if size < 0:
            raise SettingsError(f"phrasebook: {name} must not be negative, but is {size}")
    lectures = lecture_phrases()[:train]
    seen = {_bare(phrase.target) for phrase in lectures}
    ordinary, novel = _draw(Random(seed), seen, train - len(lectures) + valid, round(_CANDIDATES * test))
    trained, validated = ordinary[: len(ordinary) - valid], ordinary[len(ordinary) - valid :]
    english_known = {word for draft in trained for word in draft.source}
    italian_known = {word for draft in trained for word in draft.target}

    def unknown(draft: _Draft) -> int:
        return len(set(draft.source) - english_known) + len(set(draft.target) - italian_known)

    novel.sort(key=unknown)
    return Phrasebook(
        lectures + tuple(draft.phrase for draft in trained),
        tuple(draft.phrase for draft in validated),
        tuple(draft.phrase for draft in novel[:test]),
    )


def _draw(rng: Random, seen: set[str], ordinary_size: int, novel_size: int) -> tuple[list[_Draft], list[_Draft]]:
    """The given number of sentences without a combination reserved for the test, and the given number with one."""
    sentences = grammar()
    ordinary: list[_Draft] = []
    novel: list[_Draft] = []
    while len(ordinary) < ordinary_size or len(novel) < novel_size:
        sentence = sentences.draw(rng)
        stop, contracted = rng.random() < _WITH_STOP, rng.random() < _CONTRACTED
        together = combinations(sentence)
        part, size = (novel, novel_size) if any(map(is_held_out, together)) else (ordinary, ordinary_size)
        if len(part) == size:
            continue
        draft = _say(sentence, together, stop, contracted)
        # One target, one source: the mapping is a function, so a target that is new has a source that is new.
        if (said := _bare(draft.phrase.target)) not in seen:
            seen.add(said)
            part.append(draft)
    return ordinary, novel


def _bare(target: str) -> str:
    """The words without a full stop: sentences that differ only in it count as the same."""
    return target.rstrip(".")
