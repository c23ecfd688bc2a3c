"""The English vocabulary of the phrasebook."""

from __future__ import annotations

from tools.phrasebook.adjectives import adjectives
from tools.phrasebook.nouns import nouns
from tools.phrasebook.phrases import circumstances, idioms, names, states
from tools.phrasebook.verbs import bare_verbs, person_verbs, thing_verbs


def content_words() -> tuple[str, ...]:
    """Nouns, names, verbs, adjectives, places and idioms, each once, in alphabetical order."""
    entries = [noun.english for noun in nouns()]
    entries += [name.text for name in names()]
    entries += [verb.name for verb in (*thing_verbs(), *person_verbs(), *bare_verbs())]
    entries += [adjective.english for adjective in adjectives()]
    entries += [f"{verb.name} {rest.name}" for verb, rest in idioms()]
    entries += [f"be {state.name}" for state in states()]
    entries += [place.at.english[-1][0] for place in circumstances()]
    return tuple(sorted(set(entries)))
