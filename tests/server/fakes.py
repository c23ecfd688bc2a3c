"""Served runs without models: answers are known beforehand, and errors are raised on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from starlette.testclient import TestClient

from regard.config import SearchSettings
from regard.server.app import create_app
from regard.server.runs import NotServed, ServedRun, continues, converses
from regard.server.settings import ServerSettings
from regard.tasks import part
from regard.tasks.api import ContinuationRequest, ConversationRequest, InspectRequest, TaskRequest
from regard.tasks.translate.api import TranslationHandler
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


class FakeRun(ServedRun):
    """A run that answers in capitals. `trouble` is raised instead; `pause` is awaited before."""

    def __init__(self, name: str, task: str = "translate", source: str = "en", target: str = "it"):
        self.name, self.task, self.source, self.target = name, task, source, target
        self.api, self.handler = part(task, "api"), self
        self.converses, self.continues = converses(self.api), continues(self.api)
        self.inspects = hasattr(self.api, "inspect")
        self.translates = hasattr(self, "translate_texts")
        recipe = SimpleNamespace(search=SearchSettings(), model=SimpleNamespace(attends=True))
        self.run = SimpleNamespace(recipe=recipe, tokenizers=(Words(), Words()))
        self.queues = {}
        self.reset()

    def reset(self) -> None:
        """Forget what happened."""
        self.calls: list[tuple[Any, dict[str, Any]]] = []
        self.trouble: Exception | None = None
        self.pause: Callable[[], Any] | None = None
        self.cancelled = 0

    @property
    def about(self) -> dict[str, Any]:
        sides = {"source": self.source, "target": self.target}
        kind = {"object": "model", "owned_by": "regard", "id": self.name, "task": self.task, "arch": "toy"}
        return kind | {"parameters": 12, "created": 0, "scores": {}} | sides

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

    async def answer(self, request: TaskRequest, *, deadline: float | None = None) -> list[dict[str, Any]]:
        await self._called(request, {"deadline": deadline})
        if isinstance(request, ConversationRequest):
            return [answer_to(request.turns[-1]).as_dict(scores=False)]
        if isinstance(request, ContinuationRequest):
            made = {"continuation": " and so on", "finished": True}
            return [{**made, "alternatives": [made] * (request.nbest - 1)} for _ in request.texts()[1]]
        return [{"text": text, "label": "good"} for text in request.texts()[1]]

    async def stream(self, request: TaskRequest, *, deadline: float | None = None) -> AsyncIterator[str]:
        text = request.turns[-1] if isinstance(request, ConversationRequest) else "and so on"
        for place, word in enumerate(text.upper().split()):
            await self._called(request, {"deadline": deadline})
            yield f" {word}" if place else word

    async def inspect(self, request: InspectRequest, *, deadline: float | None = None) -> dict[str, Any]:
        await self._called(request, {"deadline": deadline})
        return {"title": request.text, "disabled": request.disabled_heads, "nothing": float("nan")}


class FakeTranslator(FakeRun):
    """A run that translates into capitals."""

    answer, stream_results = TranslationHandler.answer, TranslationHandler.stream_results

    async def translate_texts(
        self, texts: Sequence[str], *, nbest: int = 1, align: bool = False, details: bool = False, **how: Any
    ) -> list[Translation]:
        await self._called(list(texts), {"nbest": nbest, "align": align, "details": details} | how)
        return [answer_to(text, nbest, align, details) for text in texts]

    async def translate_sentences(self, text: str, **how: Any) -> AsyncIterator[Translation]:
        for sentence in filter(None, text.strip().split(". ")):
            await self._called(sentence, how)
            yield answer_to(sentence)


class FakeRuns:
    """English to Italian, a chatbot and a classifier."""

    def __init__(self, *served: FakeRun):
        default = (FakeTranslator("en-it"), FakeRun("talker", "chat"), FakeRun("topics", "classify", target=""))
        self.served = {one.name: one for one in served or default}
        self.closed = 0

    def __getitem__(self, name: str) -> FakeRun:
        return self.served[name]

    def full_for(self) -> float:
        return 0.0

    def batches(self) -> int:
        return 0

    def by_pair(self, source: str, target: str, task: str = "") -> FakeTranslator:
        for one in self.served.values():
            if isinstance(one, FakeTranslator) and (one.source, one.target) == (source, target):
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

    async def follow(self) -> None:
        """Nothing changes."""

    async def close(self) -> None:
        self.closed += 1


@contextmanager
def client_of(runs: FakeRuns | None = None, **settings: Any) -> Iterator[TestClient]:
    """A client of a server of these runs."""
    app = create_app(runs or FakeRuns(), ServerSettings(**settings))  # type: ignore[arg-type]
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client
