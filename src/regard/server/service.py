"""What all routes share: the runs, the settings, who may come in, how much they may ask, and by when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from regard.data.languages import normalize_code
from regard.errors import nearest
from regard.server.fleet import Fleet, Guess
from regard.server.keys import Keys
from regard.server.metrics import Metrics
from regard.server.parcels import Parcels
from regard.server.problems import Problem
from regard.server.served import Kind, Served
from regard.server.settings import ServerSettings

SURE = 50.0
"""A language is taken for detected where the guess is surer than this, of 100."""


@dataclass(frozen=True)
class Service:
    """The server, as its routes see it."""

    fleet: Fleet
    settings: ServerSettings
    keys: Keys | None
    metrics: Metrics
    parcels: Parcels = field(default_factory=Parcels)

    def admit(self, request: Request, key: str = "") -> None:
        """Let nobody in without a key, where there are keys. It stands in the head of the request, or in its body."""
        if self.keys is None:
            return
        given = bearer(request) or key
        if given and self.keys.fits(given):
            return
        message = "this API key is not known here" if given else "this server asks for an API key"
        if request.url.path.startswith("/v1"):
            raise Problem(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        raise Problem(403, message)

    def texts(self, q: str | list[str], field: str = "q") -> list[str]:
        """The texts of a request, if they are not too many or too long."""
        texts, settings = [q] if isinstance(q, str) else q, self.settings
        if len(texts) > settings.texts:
            raise Problem(400, f"{field}: at most {settings.texts} texts in one request, not {len(texts)}", param=field)
        characters = sum(map(len, texts))
        if characters > settings.characters:
            most = f"{field}: at most {settings.characters:,} characters in one request, not {characters:,}"
            raise Problem(400, most, param=field)
        return texts

    def nbest(self, count: int, field: str) -> int:
        """So many translations of a text, if they are not too many."""
        if count > self.settings.nbest:
            most = self.settings.nbest
            raise Problem(400, f"{field}: at most {most} translations of a text, the best included", param=field)
        return count

    def named(self, name: str) -> Served:
        """The run of this name."""
        if name not in self.fleet.served:
            guess = nearest(name, self.fleet.served)
            raise Problem(404, f"no such model is served{guess}", param="model", code="model_not_found")
        return self.fleet.by_name(name)

    def chosen(self, name: str, kind: Kind) -> Served:
        """The run of this name, or the only one of this kind."""
        suited = [served for served in self.fleet.served.values() if served.kind == kind]
        if name:
            served = self.named(name)
            if served.kind != kind:
                raise Problem(400, f"{name} is made to {served.kind}, not to {kind}", param="model")
            return served
        if len(suited) == 1:
            return suited[0]
        if suited:
            names = ", ".join(served.name for served in suited)
            raise Problem(400, f"model: say which ({names})", param="model")
        raise Problem(404, f"no model that can {kind} is served", param="model", code="model_not_found")

    def detect(self, texts: Sequence[str]) -> list[Guess]:
        """The language of each text. Those without letters, such as numbers, are taken to be in that of the others."""
        together = "\n".join(texts)
        return [self.detect_one(text if any(map(str.isalpha, text)) else together) for text in texts]

    def detect_one(self, text: str) -> Guess:
        """The language of a text, if it is likelier than all others together: a wrong one gives nonsense."""
        guess = next(iter(self.fleet.detect(text)), None)
        if guess is None or guess["confidence"] <= SURE:
            known = ", ".join(entry["code"] for entry in self.fleet.languages) or "none"
            raise Problem(400, f"source: no language could be detected; name one (known: {known})", param="source")
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
