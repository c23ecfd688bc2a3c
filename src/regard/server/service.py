"""What all routes share: the runs, the settings, who may come in, how much they may ask, and by when."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request

from regard.errors import nearest
from regard.languages import normalize_code
from regard.server.api_keys import ApiKeys
from regard.server.errors import ApiError
from regard.server.metrics import ServerMetrics
from regard.server.runs import Kind, LanguageGuess, ServedRun, ServedRuns
from regard.server.settings import ServerSettings

# Translated files that wait to be fetched: kept in memory for some minutes, under names that nobody can guess.


MINUTES = 10.0
"""How long a file can be fetched."""
ROOM = 64_000_000
"""Bytes of all files but the newest, at most; the oldest are removed first."""


@dataclass(frozen=True)
class Download:
    """One file."""

    name: str
    content: bytes
    until: float


class Downloads:
    """All files that wait."""

    def __init__(self) -> None:
        self._parcels: dict[str, Download] = {}

    def keep(self, name: str, content: bytes) -> str:
        """Keep a file; gives back the name to fetch it by."""
        token = secrets.token_urlsafe(24)
        self._parcels[token] = Download(name, content, time.monotonic() + 60 * MINUTES)
        self._clear()
        return token

    def find(self, token: str) -> Download | None:
        """The file, if it is still there."""
        self._clear()
        return self._parcels.get(token)

    def _clear(self) -> None:
        """Remove what is too old, and what has no room. The newest always has: its reader has had no time yet."""
        now, room = time.monotonic(), ROOM
        for number, (token, parcel) in enumerate(reversed(list(self._parcels.items()))):
            size = len(parcel.content) if number else 0
            if parcel.until < now or size > room:
                del self._parcels[token]
            else:
                room -= size


def translated_name(name: str, target: str) -> str:
    """The name of a translated file: page.html becomes page.it.html. Nothing of it is a path."""
    plain = re.sub(r"[^\w .()+-]", "_", re.split(r"[/\\]", name)[-1])[-100:]
    stem, dot, suffix = plain.rpartition(".")
    return f"{stem}.{target}.{suffix}" if dot else f"{plain}.{target}"


def as_attachment(name: str) -> dict[str, str]:
    """Headers that make a browser save a file under this name, and never show it."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}


SURE = 50.0
"""A language is taken for detected where the guess is surer than this, of 100."""


@dataclass(frozen=True)
class Service:
    """The server, as its routes see it."""

    fleet: ServedRuns
    settings: ServerSettings
    keys: ApiKeys | None
    metrics: ServerMetrics
    parcels: Downloads = field(default_factory=Downloads)

    def admit(self, request: Request, key: str = "") -> None:
        """Let nobody in without a key, where there are keys. It stands in the head of the request, or in its body."""
        if self.keys is None:
            return
        given = bearer(request) or key
        if given and self.keys.fits(given):
            return
        message = "this API key is not known here" if given else "this server asks for an API key"
        if request.url.path.startswith("/v1"):
            raise ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        raise ApiError(403, message)

    def texts(self, q: str | list[str], field: str = "q") -> list[str]:
        """The texts of a request, if they are not too many or too long."""
        texts, settings = [q] if isinstance(q, str) else q, self.settings
        if len(texts) > settings.texts:
            raise ApiError(
                400, f"{field}: at most {settings.texts} texts in one request, not {len(texts)}", param=field
            )
        characters = sum(map(len, texts))
        if characters > settings.characters:
            most = f"{field}: at most {settings.characters:,} characters in one request, not {characters:,}"
            raise ApiError(400, most, param=field)
        return texts

    def nbest(self, count: int, field: str) -> int:
        """So many translations of a text, if they are not too many."""
        if count > self.settings.nbest:
            most = self.settings.nbest
            raise ApiError(400, f"{field}: at most {most} translations of a text, the best included", param=field)
        return count

    def named(self, name: str) -> ServedRun:
        """The run of this name."""
        if name not in self.fleet.served:
            guess = nearest(name, self.fleet.served)
            raise ApiError(404, f"no such model is served{guess}", param="model", code="model_not_found")
        return self.fleet.by_name(name)

    def chosen(self, name: str, kind: Kind) -> ServedRun:
        """The run of this name, or the only one of this kind."""
        suited = [served for served in self.fleet.served.values() if served.kind == kind]
        if name:
            served = self.named(name)
            if served.kind != kind:
                raise ApiError(400, f"{name} is made to {served.kind}, not to {kind}", param="model")
            return served
        if len(suited) == 1:
            return suited[0]
        if suited:
            names = ", ".join(served.name for served in suited)
            raise ApiError(400, f"model: say which ({names})", param="model")
        raise ApiError(404, f"no model that can {kind} is served", param="model", code="model_not_found")

    def detect(self, texts: Sequence[str]) -> list[LanguageGuess]:
        """The language of each text. Those without letters, such as numbers, are taken to be in that of the others."""
        together = "\n".join(texts)
        return [self.detect_one(text if any(map(str.isalpha, text)) else together) for text in texts]

    def detect_one(self, text: str) -> LanguageGuess:
        """The language of a text, if it is likelier than all others together: a wrong one gives nonsense."""
        guess = next(iter(self.fleet.detect(text)), None)
        if guess is None or guess["confidence"] <= SURE:
            known = ", ".join(entry["code"] for entry in self.fleet.languages) or "none"
            raise ApiError(400, f"source: no language could be detected; name one (known: {known})", param="source")
        return guess

    def is_same_language(self, source: str, target: str) -> bool:
        """Whether a text is in the wanted language already: then it stays as it is."""
        codes = {code for entry in self.fleet.languages for code in (entry["code"], *entry["targets"])}
        source, target = normalize_code(source), normalize_code(target)
        return source == target and source in map(normalize_code, codes)


def bearer(request: Request) -> str:
    """The key in the head of a request: `Authorization: Bearer KEY`."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


async def service_of(request: Request) -> Service:
    """The service that the app was made with."""
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(service_of)]


async def admitted(request: Request, service: TheService) -> None:
    """A dependency: the key in the head must fit, where there are keys."""
    service.admit(request)
