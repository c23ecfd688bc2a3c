"""The built-in corpus: an English-Italian phrasebook, written by a grammar, with gold alignments and roles.

The grammar is imported and built when it is first used.
"""

from __future__ import annotations

from regard.data.phrasebook.phrase import Phrase, Phrasebook, Roles

__all__ = ["Phrase", "Phrasebook", "Roles", "content_words", "count_pairs", "phrasebook"]


def phrasebook(seed: int = 1, train: int = 24_000, valid: int = 500, test: int = 1_000) -> Phrasebook:
    """Three parts that share no sentence on either side, the same for a seed on every machine.

    The training part opens with the sentences of the lectures. Each sentence of the test part brings together two words
    that no other part does; all its words are in the training part, unless that is too small to hold them.
    """
    from regard.data.phrasebook.corpus import build

    return build(seed, train, valid, test)


def content_words() -> tuple[str, ...]:
    """The English content words and idioms of the phrasebook, each once, in alphabetical order."""
    from regard.data.phrasebook import vocabulary

    return vocabulary.content_words()


def count_pairs() -> int:
    """How many different pairs the grammar can form, counted from its choices; full stops and "n't" make none."""
    from regard.data.phrasebook.grammar import grammar

    return grammar().size
