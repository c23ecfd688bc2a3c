"""Phrases: the sentence pairs that the grammar writes, with what is needed to choose their part."""

from __future__ import annotations

from dataclasses import dataclass

from regard.data import builtin


@dataclass(frozen=True, slots=True)
class Phrase(builtin.Phrase):
    """A sentence pair with its combinations of words, which decide whether it belongs to the test part."""

    combinations: tuple[str, ...] = ()
    """The pairs of content words that the sentence brings together, by their English names: "eat+apple"."""


@dataclass(frozen=True, slots=True)
class Phrasebook:
    """The three parts of the corpus."""

    train: tuple[Phrase, ...]
    valid: tuple[Phrase, ...]
    test: tuple[Phrase, ...]
