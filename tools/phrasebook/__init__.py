"""The grammar that writes the built-in English-Italian phrasebook, with gold alignments and roles.

`python -m tools.phrasebook` writes the packaged file again. The grammar is imported and built when it is first used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from regard.data.builtin import PARTS, Roles
from tools.phrasebook.phrase import Phrase, Phrasebook

__all__ = ["Phrase", "Phrasebook", "Roles", "content_words", "count_pairs", "packaged_rows", "phrasebook"]


def phrasebook(seed: int = 1, train: int = 24_000, valid: int = 500, test: int = 1_000) -> Phrasebook:
    """Generate three parts that share no sentence in either language; a seed gives the same result on every machine.

    The training part begins with the sentences of the lectures. Each sentence of the test part combines two words that
    no other part combines; all its words are in the training part, unless that is too small.
    """
    from tools.phrasebook.corpus import build

    return build(seed, train, valid, test)


def content_words() -> tuple[str, ...]:
    """The English content words and idioms of the phrasebook, each once, in alphabetical order."""
    from tools.phrasebook import vocabulary

    return vocabulary.content_words()


def count_pairs() -> int:
    """Count the different pairs that the grammar can form; full stops and contractions do not make a pair different."""
    from tools.phrasebook.grammar import grammar

    return grammar().size


def packaged_rows() -> Iterator[dict[str, Any]]:
    """The rows of the packaged file: the corpus of seed 1, part by part, without the combinations of words."""
    book = phrasebook()
    for part in PARTS:
        for phrase in getattr(book, part):
            yield {
                "part": part,
                "source": phrase.source,
                "target": phrase.target,
                "alignment": phrase.alignment,
                "source_roles": _three(phrase.source_roles),
                "target_roles": _three(phrase.target_roles),
            }


def _three(roles: Roles) -> list[tuple[int, ...]]:
    return [roles.subject, roles.verb, roles.object]
