"""A fleet that only pretends: answers are known beforehand, and trouble comes when it is called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from starlette.testclient import TestClient

from regard.config import SearchSettings
from regard.server.app import create_app
from regard.server.runs import NotServed
from regard.server.settings import ServerSettings
from regard.tasks.translate.translation import Alignment, Translation


class Words:
    """A tokenizer whose tokens are words."""

    def encode(self, text: str) -> list[str]:
        return text.split()

    def encode_many(self, texts: Sequence[str]) -> list[list[str]]:
        return [text.split() for text in texts]


def answer_to(text: str, nbest: int = 1, align: bool = False, details: bool = False) -> Translation:
    """The text in capitals; others have exclamation marks."""
    written = text.upper()
    tokens = tuple(written.split())
    alignment = Alignment(tuple(text.split()), tokens, tuple((n, n) for n in range(len(tokens)))) if align else None
    others = tuple(answer_to(text + "!" * n) for n in range(1, nbest))
    log_probs = (-0.5,) * (len(tokens) + 1) if details else ()
    return Translation(text, written, -0.5, tokens, log_probs, True, alternatives=others, alignment=alignment)


class Verdict(SimpleNamespace):
    """A label."""

    def as_dict(self) -> dict[str, Any]:
        return vars(self)


class FakeServed:
    """A run that answers in capitals. `trouble` is raised instead; `pause` is waited for before."""

    def __init__(self, name: str, kind: str = "translate", source: str = "en", target: str = "it"):
        self.name, self.kind, self.source, self.target = name, kind, source, target
        recipe = SimpleNamespace(search=SearchSettings(), model=SimpleNamespace())
        self.run = SimpleNamespace(recipe=recipe, tokenizers=(Words(), Words()))
        self.queues: dict[str, Any] = {}
        self.reset()

    def reset(self) -> None:
        """Forget what happened."""
        self.calls: list[tuple[Any, dict[str, Any]]] = []
        self.trouble: Exception | None = None
        self.pause: Callable[[], Any] | None = None
        self.cancelled = 0

    def about(self) -> dict[str, Any]:
        sides = {"source": self.source, "target": self.target}
        return {"id": self.name, "kind": self.kind, "arch": "toy", "parameters": 12, "created": 0, "scores": {}} | sides

    async def _called(self, asked: Any, how: dict[str, Any]) -> None:
        self.calls.append((asked, how))
        if self.trouble:
            raise self.trouble
        if self.pause:
            try:
                await self.pause()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise

    async def translate(
        self, texts: Sequence[str], *, nbest: int = 1, align: bool = False, details: bool = False, **how: Any
    ) -> list[Translation]:
        await self._called(list(texts), {"nbest": nbest, "align": align, "details": details} | how)
        return [answer_to(text, nbest, align, details) for text in texts]

    async def pieces(self, text: str, **how: Any) -> AsyncIterator[Translation]:
        for sentence in filter(None, text.strip().split(". ")):
            await self._called(sentence, how)
            yield answer_to(sentence)

    async def inspect(self, text: str, target: str | None = None, **how: Any) -> dict[str, Any]:
        await self._called((text, target), how)
        return {"title": text, "off": how["off"], "nothing": float("nan")}

    async def reply(self, turns: Sequence[str], **how: Any) -> Translation:
        await self._called(list(turns), how)
        return answer_to(turns[-1])

    async def stream(self, turns: Sequence[str], **how: Any) -> AsyncIterator[str]:
        for place, word in enumerate(turns[-1].upper().split()):
            await self._called(word, how)
            yield f" {word}" if place else word

    async def classify(self, texts: Sequence[str], **how: Any) -> list[Verdict]:
        await self._called(list(texts), how)
        return [Verdict(text=text, label="good", probability=0.9) for text in texts]

    async def tag(self, texts: Sequence[str], **how: Any) -> list[Verdict]:
        await self._called(list(texts), how)
        return [Verdict(text=text, tags=["O"] * len(text.split())) for text in texts]


class FakeFleet:
    """English to Italian, a chatter and a classifier."""

    def __init__(self, *served: FakeServed):
        default = (FakeServed("en-it"), FakeServed("talker", "chat"), FakeServed("topics", "classify", target=""))
        self.served = {one.name: one for one in served or default}
        self.closed = 0

    def __getitem__(self, name: str) -> FakeServed:
        return self.served[name]

    def full_for(self) -> float:
        return 0.0

    def batches(self) -> int:
        return 0

    def by_name(self, name: str) -> FakeServed:
        return self.served[name]

    def by_pair(self, source: str, target: str) -> FakeServed:
        for one in self.served.values():
            if (one.kind, one.source, one.target) == ("translate", source, target):
                return one
        raise NotServed(f"{source} to {target} is not served")

    @property
    def languages(self) -> list[dict[str, Any]]:
        italian = {"code": "it", "name": "Italian", "targets": []}
        return [{"code": "en", "name": "English", "targets": ["it"]}, italian]

    def detect(self, text: str) -> list[dict[str, Any]]:
        """Italian where somebody says ciao, unknown where it is Greek or has no letters, else English."""
        if not any(map(str.isalpha, text)) or "κ" in text:
            return [{"language": code, "confidence": 0.0} for code in ("en", "it")]
        first, second = ("it", "en") if "ciao" in text else ("en", "it")
        return [{"language": first, "confidence": 90.0}, {"language": second, "confidence": 10.0}]

    async def close(self) -> None:
        self.closed += 1


@contextmanager
def client_of(fleet: FakeFleet | None = None, **settings: Any) -> Iterator[TestClient]:
    """A client of a server before this fleet."""
    app = create_app(fleet or FakeFleet(), ServerSettings(**settings))  # type: ignore[arg-type]
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client
