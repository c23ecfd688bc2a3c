"""Built-in small talk: conversations between somebody and a friendly program, written by a small grammar.

Somebody tells things (a name, a city, a plan) and asks for them a little later; answers "yes" to a question that stands
in the turn before; says what the weather is like and wonders about an umbrella. What the program should say depends on
what was said before, so that a model that reads one turn only must guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from regard.data.builtin import PARTS

Turns = tuple[str, ...]


class Smalltalk(NamedTuple):
    """Conversations to learn from, to validate on and to test with. The program has every second turn."""

    train: tuple[Turns, ...]
    valid: tuple[Turns, ...]
    test: tuple[Turns, ...]


def smalltalk(seed: int = 1, train: int = 3000, valid: int = 150, test: int = 300) -> Smalltalk:
    """Three parts that share no conversation, the same for a seed on every machine."""
    from tools.smalltalk.grammar import write

    made = write(seed, train + valid + test)
    return Smalltalk(made[:train], made[train : train + valid], made[train + valid :])


def packaged_rows() -> Iterator[dict[str, Any]]:
    """The rows of the packaged file: the corpus of seed 1, part by part."""
    book = smalltalk()
    for part in PARTS:
        for turns in getattr(book, part):
            yield {"part": part, "turns": turns}
