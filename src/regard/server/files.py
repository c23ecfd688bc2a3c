"""Files and marked-up texts: taken apart, their texts translated beside everybody else's, and put together again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from regard.documents import Document, parse
from regard.server.batching import QueueFull, TooLate
from regard.server.bodies import MULTIPART, read_upload
from regard.server.errors import ApiError
from regard.server.runs import ServedRun
from regard.server.service import Service, translated_name
from regard.tasks.documents import looks_back
from regard.tasks.translate.translation import Translation

SLICE = 64
"""Texts that are sent into the queue at a time: a file never fills it."""
LOST = "X-Regard-Lost"
"""The header that says how many addresses, placeholders, pieces of code and numbers a model left out."""
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            MULTIPART: {
                "schema": {
                    "type": "object",
                    "required": ["file", "source", "target"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "Its name tells its format."},
                        "source": {"type": "string", "description": 'Language code, or "auto".'},
                        "target": {"type": "string", "description": "Language code to translate into."},
                        "api_key": {"type": "string", "description": "Where the server asks for one."},
                    },
                }
            }
        },
    }
}
"""The form in the API's description: the routes read it themselves, so that a file is never put on disk."""


@dataclass(frozen=True)
class TranslatedFile:
    """A document in another language."""

    content: str | bytes
    lost: tuple[str, ...] = ()
    """Addresses, placeholders, code and numbers that the model left out; all but the numbers were put back."""

    def as_bytes(self) -> bytes:
        """As it is written to a file."""
        return self.content if isinstance(self.content, bytes) else self.content.encode()

    def headers(self) -> dict[str, str]:
        """How much was lost, for whoever gets the file and no JSON."""
        return {LOST: str(len(self.lost))}


async def translate_upload(request: Request, service: Service) -> tuple[str, TranslatedFile]:
    """The new name of the file of an upload, and the file translated."""
    fields, name, content = await read_upload(request, service.settings.document_bytes)
    service.admit(request, fields.get("api_key", ""))
    for field in ("source", "target"):
        if field not in fields:
            raise ApiError(400, f"{field}: missing", param=field)
    source, target = fields["source"], fields["target"]
    [made] = await translate_documents(
        service, name, [content], source, target, deadline=service.settings.document_timeout
    )
    return translated_name(name, target), made


async def translate_documents(
    service: Service, name: str, contents: Sequence[str | bytes], source: str, target: str, *, deadline: float
) -> list[TranslatedFile]:
    """Documents of one format, which their `name` tells, translated. Reading and writing them is left to a thread."""
    documents = await asyncio.to_thread(lambda: [parse(name, content) for content in contents])
    texts = [text for document in documents for text in document.texts]
    if source == "auto":
        source = service.detect_one("\n".join(texts))["language"]
    if service.is_same_language(source, target):
        return [TranslatedFile(content) for content in contents]
    served = service.fleet.by_pair(source, target)
    align = any(document.needs_alignment for document in documents) and looks_back(served.run.recipe.model)
    answers = await _answers(served, texts, align, deadline)
    service.metrics.wrote(served.name, answers)
    left = iter(answers)
    parts = [[next(left) for _ in document.texts] for document in documents]
    return await asyncio.to_thread(lambda: list(map(_put_together, documents, parts)))


def _put_together(document: Document, answers: Sequence[Translation]) -> TranslatedFile:
    lost = tuple(piece for pieces in document.lost(answers) for piece in pieces)
    return TranslatedFile(document.rebuild(answers), lost)


async def _answers(served: ServedRun, texts: Sequence[str], align: bool, deadline: float) -> list[Translation]:
    """Answers to many texts, some at a time. Once begun, a full queue is waited for."""
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline
    answers: list[Translation] = []
    while len(answers) < len(texts):
        if (left := until - loop.time()) <= 0:
            raise TooLate(f"not done within {deadline:g} s")
        try:
            some = texts[len(answers) : len(answers) + SLICE]
            answers += await served.translate(some, align=align, deadline=left)
        except QueueFull as full:
            if not answers:
                raise
            await asyncio.sleep(min(full.retry_after, left))
    return answers
