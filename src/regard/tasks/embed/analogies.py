"""Questions "a is to b as c is to?" in the format of the word2vec program, and their accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import CorpusError
from regard.files import read_lines


@dataclass(frozen=True)
class Analogy:
    """The answer to "`a` is to `b` as `c` is to?": the expected word and the most similar word."""

    a: str
    b: str
    c: str
    expected: str
    category: str = ""
    answer: str = ""
    """Empty if a word of the question is unknown."""
    rank: int = 0
    """Rank of the expected word, from 1; 0 if a word is unknown."""

    @property
    def is_correct(self) -> bool:
        return self.rank == 1


def read_analogies(path: str | Path) -> list[Analogy]:
    """Read a file with four words per line; a line such as ": plural" begins a category. Empty lines are skipped."""
    found, category = list[Analogy](), ""
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if line.startswith(":"):
            category = line[1:].strip()
        elif words:
            if len(words) != 4:
                problem = f"a question is four words (walk walked play played), not {len(words)}"
                raise CorpusError(path, f"{problem}; correct the line", line=number)
            a, b, c, expected = words
            found.append(Analogy(a, b, c, expected, category))
    if not found:
        raise CorpusError(path, "there is no question; write four words per line")
    return found


def summarize(analogies: Sequence[Analogy]) -> dict[str, Any]:
    """Accuracy over the questions whose words are all known, and the numbers of questions."""
    known = [one for one in analogies if one.rank]
    right = sum(one.is_correct for one in known)
    return {"accuracy": right / max(len(known), 1), "correct": right, "known": len(known), "questions": len(analogies)}


def by_category(analogies: Sequence[Analogy]) -> dict[str, dict[str, Any]]:
    """The summary of each category, in the order of the file."""
    names = dict.fromkeys(one.category for one in analogies)
    return {name: summarize([one for one in analogies if one.category == name]) for name in names}
