"""Who replies in `regard chat`: a model that writes, or a knowledge base, which may hand over to a model."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console

    from regard.tasks.chat import Chatter
    from regard.tasks.retrieve import Reply, Retriever


SHOWN_WORDS, LEAST_SHOWN = 5, 0.005
"""Words that are named, at most, and the share below which one is not."""
SHADED_WORDS = 200
"""A question of more words is not repeated."""


class Speaker(Protocol):
    """One side of a conversation."""

    @property
    def turns(self) -> int:
        """How many turns it looks back at."""

    def stream(self, turns: Sequence[str]) -> Iterator[str]:
        """The reply in pieces, as they are written."""

    def reply(self, turns: Sequence[str]) -> str:
        """The reply on a line."""

    def facts(self, turns: Sequence[str]) -> dict[str, Any]:
        """The reply as "text", and all that is known of it."""

    def show(self, turns: Sequence[str], reply: str) -> None:
        """Print what more was asked for, after the reply."""


class Writer:
    """A model that writes its replies."""

    def __init__(self, chatter: Chatter, search: dict[str, Any], *, explain: bool = False):
        self.chatter, self.search, self.explain = chatter, search, explain
        self.turns = chatter.turns

    def stream(self, turns: Sequence[str]) -> Iterator[str]:
        """Token by token, where the search allows it."""
        return self.chatter.stream(turns, **self.search)

    def reply(self, turns: Sequence[str]) -> str:
        """All at once."""
        return self.chatter.reply(turns, **self.search).text

    def facts(self, turns: Sequence[str]) -> dict[str, Any]:
        """The answer; its turns by weight if they are to be explained."""
        answer = self.chatter.reply(turns, **self.search)
        facts = answer.as_dict()
        if self.explain and answer.text:
            facts["turns"] = [turn.as_dict() for turn in self.chatter.explain(turns, answer.text)]
        return facts

    def show(self, turns: Sequence[str], reply: str) -> None:
        """Turns and words, shaded by attention."""
        if self.explain and reply:
            from rich.console import Console

            from regard.cli.shading import show_weights

            show_weights(self.chatter.explain(turns, reply), Console(highlight=False))


class Finder:
    """A knowledge base; to what it does not know, `fallback` replies, if there is one."""

    def __init__(self, retriever: Retriever, *, top: int = 0, explain: bool = False, fallback: Writer | None = None):
        self.retriever, self.top, self.explain, self.fallback = retriever, top, explain, fallback
        self.turns = max(retriever.turns, fallback.turns if fallback else 0)
        self._found: Reply | None = None

    def stream(self, turns: Sequence[str]) -> Iterator[str]:
        """The answer is there at once; what a model writes comes as it is written."""
        self._found = self.retriever.reply(turns)
        return iter([self._found.text]) if self._answers() else self._writer().stream(turns)

    def reply(self, turns: Sequence[str]) -> str:
        """An answer of several lines is put on one."""
        self._found = self.retriever.reply(turns)
        return " ".join(self._found.text.split()) if self._answers() else self._writer().reply(turns)

    def facts(self, turns: Sequence[str]) -> dict[str, Any]:
        """The answer with its matches; who replied is "by", where there are two who may."""
        found = self._found = self.retriever.reply(turns)
        facts = found.as_dict()
        facts["matches"] = facts["matches"][: self.top or len(found.matches)]
        if self.explain:
            facts["words"] = [part.as_dict() for part in self.retriever.explain(found)]
        if self.fallback:
            facts["by"] = "knowledge" if found.known else "model"
            facts |= {} if found.known else {"text": self.fallback.reply(turns)}
        return facts

    def show(self, turns: Sequence[str], reply: str) -> None:
        """The best matches with their scores; the words that met, shaded."""
        if self._found is None or not (self.top or self.explain):
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False, soft_wrap=True)
        if self.explain:
            self._explain(self._found, console)
        for match in self._found.matches[: self.top]:
            parts = ((name, getattr(match, name)) for name in ("bm25", "dense"))
            scores = "  ".join(f"{name} {value:.3f}" for name, value in parts if value is not None)
            console.print(Text(f"  {match.score:.3f}  {match.question}  ({scores})", style="dim"))

    def _explain(self, found: Reply, console: Console) -> None:
        """The words of the question, shaded where there are colours; then those that met most of the match."""
        from rich.text import Text

        from regard.cli.shading import show_words

        for part in self.retriever.explain(found):
            if console.is_terminal and len(part.words) <= SHADED_WORDS:
                show_words(part, console)
            heavy = heapq.nlargest(SHOWN_WORDS, part.words, key=lambda word: word.weight)
            named = ", ".join(f"{word.text} {word.weight:.0%}" for word in heavy if word.weight >= LEAST_SHOWN)
            console.print(Text(f"  most matched: {named}", style="dim"))

    def _answers(self) -> bool:
        return self.fallback is None or (self._found is not None and self._found.known)

    def _writer(self) -> Writer:
        assert self.fallback is not None
        return self.fallback
