"""A knowledge base as one who talks: what it finds is a reply like any other, and says where it is from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.words import word_texts
from regard.tasks.answer import Answer
from regard.tasks.retrieve import Retriever


@dataclass(frozen=True)
class KnownAnswer(Answer):
    """An answer that was not written, but found."""

    question: str = ""
    """The known question that is nearest to the one asked; empty where there is none."""
    known: bool = False
    """Whether it is near enough."""

    @property
    def found(self) -> dict[str, Any]:
        """For JSON."""
        return {"question": self.question, "score": self.score, "known": self.known}


class Librarian:
    """Replies from a knowledge base. How a model would search is no concern of it."""

    def __init__(self, retriever: Retriever):
        self.retriever = retriever

    def reply(self, turns: Sequence[str], **search: Any) -> KnownAnswer:
        """The answer to what was said last."""
        found = self.retriever.reply(turns)
        tokens = tuple(word_texts(found.text))
        question = found.matches[0].question if found.matches else ""
        return KnownAnswer(
            found.source, found.text, found.score, tokens, (), True, question=question, known=found.known
        )

    def stream(self, turns: Sequence[str], **search: Any) -> Iterator[str]:
        """The same, all at once."""
        yield self.retriever.reply(turns).text
