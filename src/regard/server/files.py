"""Translation of files and texts with markup, and downloads of translated files.

A file is parsed, its texts are translated in the same queue as other requests, and the file is assembled again.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from fastapi import Request

from regard.documents import Document, parse
from regard.server.batching import QueueFull, TooLate
from regard.server.bodies import MULTIPART, read_upload
from regard.tasks.api import FieldError

if TYPE_CHECKING:
    from regard.server.runs import ServedRun
    from regard.server.service import Service

SLICE = 64
"""Maximum number of texts of one file in the queue at the same time, so that a file never fills the queue."""
DOWNLOAD_BYTES = 64_000_000
"""Maximum total size of the stored files, without the newest; the oldest files are removed first."""
_FORM = {
    "type": "object",
    "required": ["file", "source", "target"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "The ending of its name gives its format."},
        "source": {"type": "string", "description": 'Language code of the file, or "auto".'},
        "target": {"type": "string", "description": "Language code to translate into."},
        "api_key": {"type": "string", "description": "API key, if the server requires one."},
    },
}
UPLOAD: dict[str, Any] = {"requestBody": {"required": True, "content": {MULTIPART: {"schema": _FORM}}}}
"""API description of the upload form. The routes parse the form themselves, so that no file is written to disk."""


class TranslatedFile(NamedTuple):
    """A translated document: its new file name, its content, and what the model omitted (`lost`)."""

    name: str
    content: Any
    """Text (str) or bytes, the same type as the content of the source file."""
    lost: tuple[str, ...] = ()
    """URLs, placeholders, code and numbers that the model omitted; all except numbers were inserted again."""

    @property
    def headers(self) -> dict[str, str]:
        """The response header X-Regard-Lost, for clients that get only the file; its value is the length of `lost`."""
        return {"X-Regard-Lost": str(len(self.lost))}


async def translate_upload(request: Request, service: Service) -> TranslatedFile:
    fields, name, content = await read_upload(request, service.settings.document_bytes)
    service.require_key(request, fields.get("api_key", ""))
    for field in ("source", "target"):
        if field not in fields:
            raise FieldError(field, 'missing; send a language code, e.g. "en"')
    seconds = service.settings.document_timeout
    [made] = await translate_documents(service, name, [content], fields["source"], fields["target"], deadline=seconds)
    return made


async def translate_documents(
    service: Service, name: str, contents: Sequence[str | bytes], source: str, target: str, *, deadline: float
) -> list[TranslatedFile]:
    """Translate documents whose format is given by the ending of `name`, within `deadline` seconds."""
    documents = await asyncio.to_thread(lambda: [parse(name, content) for content in contents])
    texts = [text for document in documents for text in document.texts]
    new_name = translated_name(name, target)
    if source == "auto":
        source = service.detect_one("\n".join(texts))["language"]
    if service.is_same_language(source, target):
        return [TranslatedFile(new_name, content) for content in contents]
    served = service.runs.by_pair(source, target)
    align = any(document.needs_alignment for document in documents) and served.run.recipe.model.attends
    answers = iter(await _translate_all(service, served, texts, align, deadline))
    parts = [[next(answers) for _ in document.texts] for document in documents]

    def assemble(document: Document, answers: list[Any]) -> TranslatedFile:
        lost = tuple(piece for pieces in document.lost(answers) for piece in pieces)
        return TranslatedFile(new_name, document.rebuild(answers), lost)

    return await asyncio.to_thread(lambda: list(map(assemble, documents, parts)))


async def _translate_all(
    service: Service, served: ServedRun, texts: Sequence[str], align: bool, deadline: float
) -> list[Any]:
    """Translate `SLICE` texts at a time. If the queue is full at a later slice, wait and retry until `deadline`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline
    answers: list[Any] = []
    while len(answers) < len(texts):
        if (left := until - loop.time()) <= 0:
            raise TooLate(f"the file was not translated within {deadline:g} s; send a smaller file")
        try:
            some = texts[len(answers) : len(answers) + SLICE]
            answers += await served.handler.translate_texts(some, align=align, deadline=left)
        except QueueFull as full:
            if not answers:
                raise
            await asyncio.sleep(min(full.retry_after, left))
    service.metrics.count_texts(served.name, [len(answer.tokens) for answer in answers])
    return answers


class Downloads:
    """Translated files, stored in memory for ten minutes under random tokens."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[str, bytes, float]] = {}  # by token: name, content, time of expiry

    def keep(self, name: str, content: bytes) -> str:
        """Store a translated file and return its random token, which is part of its download URL."""
        token = secrets.token_urlsafe(24)
        self._files[token] = name, content, time.monotonic() + 600  # ten minutes
        self._remove_old()
        return token

    def find(self, token: str) -> tuple[str, bytes] | None:
        """The name and the content of the file with this token, or None if it was removed or never existed."""
        self._remove_old()
        return self._files[token][:2] if token in self._files else None

    def _remove_old(self) -> None:
        """Remove expired files, and older files if all files but the newest have more than DOWNLOAD_BYTES together."""
        now, room = time.monotonic(), DOWNLOAD_BYTES
        for number, (token, (_, content, until)) in enumerate(reversed(list(self._files.items()))):
            size = len(content) if number else 0
            if until < now or size > room:
                del self._files[token]
            else:
                room -= size


def translated_name(name: str, target: str) -> str:
    """File name for a translation, without folders: "a/page.html" and target language "it" give "page.it.html"."""
    plain = re.sub(r"[^\w .()+-]", "_", re.split(r"[/\\]", name)[-1])[-100:]
    stem, dot, suffix = plain.rpartition(".")
    return f"{stem}.{target}.{suffix}" if dot else f"{plain}.{target}"


def as_attachment(name: str) -> dict[str, str]:
    """The response header that makes a browser save the response as a file `name` instead of displaying it."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
