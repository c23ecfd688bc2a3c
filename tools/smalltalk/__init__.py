"""Built-in small talk: conversations between a user and a friendly program, written by a small grammar.

The user mentions things (a name, a city, a plan) and asks for them a little later; answers "yes" to a question of the
turn before; describes the weather and asks about an umbrella. The right reply depends on earlier turns, so a model that
reads only one turn must guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from regard.data.builtin import PARTS

Turns = tuple[str, ...]


class Smalltalk(NamedTuple):
    """Conversations for training, validation and test. The program has every second turn."""

    train: tuple[Turns, ...]
    valid: tuple[Turns, ...]
    test: tuple[Turns, ...]


def smalltalk(seed: int = 1, train: int = 3000, valid: int = 150, test: int = 300) -> Smalltalk:
    """Generate three parts that share no conversation; a seed gives the same result on every machine."""
    from tools.smalltalk.grammar import write

    made = write(seed, train + valid + test)
    return Smalltalk(made[:train], made[train : train + valid], made[train + valid :])


def packaged_rows() -> Iterator[dict[str, Any]]:
    """The rows of the packaged file: the corpus of seed 1, part by part."""
    book = smalltalk()
    for part in PARTS:
        for turns in getattr(book, part):
            yield {"part": part, "turns": turns}
