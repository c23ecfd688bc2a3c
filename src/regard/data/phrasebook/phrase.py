"""What the phrasebook hands out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Roles:
    """Which words of a sentence are its subject, its verb and its object; positions in `words(sentence)`.

    Of a sentence with a reason, the roles are those of its first clause. Where Italian drops the pronoun, the subject
    is empty. Piacere turns the roles round: in "Mi piace la casa" the house is the subject.
    """

    subject: tuple[int, ...]
    verb: tuple[int, ...]
    object: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Phrase:
    """An English sentence, its Italian rendering, and which words render which."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]
    """Pairs of positions in `words(source)` and `words(target)`, counted from 0."""
    source_roles: Roles
    target_roles: Roles
    combinations: tuple[str, ...] = ()
    """The pairs of content words that the sentence brings together, by their English names: "eat+apple"."""


@dataclass(frozen=True, slots=True)
class Phrasebook:
    """The three parts of the corpus."""

    train: tuple[Phrase, ...]
    valid: tuple[Phrase, ...]
    test: tuple[Phrase, ...]
