"""What all routes share: the served runs, the settings, API keys, limits and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from regard.errors import nearest
from regard.languages import normalize_code
from regard.server.api_keys import ApiKeys
from regard.server.errors import ApiError
from regard.server.files import Downloads
from regard.server.metrics import ServerMetrics
from regard.server.runs import Json, ServedRun, ServedRuns
from regard.server.settings import ServerSettings
from regard.tasks.api import FieldError, TaskRequest


@dataclass(frozen=True)
class Service:
    """The state of the server, and the checks of requests that several routes use."""

    runs: ServedRuns
    settings: ServerSettings
    keys: ApiKeys | None
    metrics: ServerMetrics
    downloads: Downloads = field(default_factory=Downloads)

    def require_key(self, request: Request, key: str = "") -> None:
        """Raise an error if the server has API keys and neither the header nor the body (`key`) has a valid key."""
        given = bearer(request) or key
        if self.keys is None or self.keys.is_valid(given):
            return
        problem = "this API key is not valid" if given else "this server requires an API key"
        message = f"{problem}; send a valid key in the header Authorization: Bearer KEY"
        if request.url.path.startswith("/v1"):
            raise ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        raise ApiError(403, message)

    def check_texts(
        self, q: str | list[str], field: str = "q", names: tuple[str, str] = ("texts", "characters")
    ) -> list[str]:
        """Return `q` as a list of texts; too many texts or characters raise an error that names the field `field`.

        `names`: what the message calls texts and characters.
        """
        texts = [q] if isinstance(q, str) else q
        counts = (self.settings.texts, len(texts)), (self.settings.characters, sum(map(len, texts)))
        for what, (most, count) in zip(names, counts, strict=True):
            if count > most:
                raise FieldError(field, f"at most {most:,} {what} in one request, not {count:,}")
        return texts

    def check_pictures(self, asked: TaskRequest) -> None:
        """Raise an error if a request has too many pictures."""
        pictures = getattr(asked, "pictures", "")
        if isinstance(pictures, list) and len(pictures) > self.settings.pictures:
            raise FieldError("pictures", f"at most {self.settings.pictures} in one request, not {len(pictures):,}")

    def check_nbest(self, count: int, field: str) -> int:
        """Return `count` (translations per text); a value above the limit raises an error that names `field`."""
        if count > self.settings.nbest:
            raise FieldError(
                field, f"at most {self.settings.nbest} translations per text, including the best one, not {count}"
            )
        return count

    def named(self, name: str) -> ServedRun:
        if name not in self.runs.served:
            message = f"no such model is served{nearest(name, self.runs.served)} (GET /v1/models lists the models)"
            raise ApiError(404, message, param="model", code="model_not_found")
        return self.runs.served[name]

    def choose(self, asked: TaskRequest, task: str) -> ServedRun:
        """The run for a request: found by its field `model`, else by its languages, else the only run of `task`."""
        if asked.model:
            run = self.named(asked.model)
            if run.task != task:
                raise ApiError(
                    400, f"{run.name} was trained for {run.task}, not for {task}; use /v1/{run.task}", param="model"
                )
            return run
        source, target = getattr(asked, "source", ""), getattr(asked, "target", "")
        if not (source or target):
            return self._only([run for run in self.runs.served.values() if run.task == task], f"for {task}")
        if source in ("", "auto"):
            field, texts = asked.texts()
            found = sorted({guess["language"] for guess in self.detect(texts or [""])})
            if len(found) > 1:
                raise FieldError(
                    field, f"texts in several languages ({', '.join(found)}); send one request per language"
                )
            [source] = found
        return self.runs.by_pair(source, target, task)

    def choose_inspected(self, name: str) -> ServedRun:
        """The run called `name`; if `name` is empty, the only run that can be inspected."""
        if not name:
            return self._only([run for run in self.runs.served.values() if run.inspects], "that can be inspected")
        run = self.named(name)
        if not run.inspects:
            raise ApiError(400, f"{name} was trained for {run.task}, which cannot be inspected here", param="model")
        return run

    def _only(self, runs: Sequence[ServedRun], which: str) -> ServedRun:
        if len(runs) == 1:
            return runs[0]
        if runs:
            names = ", ".join(run.name for run in runs)
            raise FieldError("model", f"required, because several models fit ({names})")
        raise ApiError(404, f"no model {which} is served", param="model", code="model_not_found")

    def detect(self, texts: Sequence[str]) -> list[Json]:
        """The language and confidence of each text. A text without letters gets the language of all texts joined."""
        together = "\n".join(texts)
        return [self.detect_one(text if any(map(str.isalpha, text)) else together) for text in texts]

    def detect_one(self, text: str) -> Json:
        """The language of a text and its confidence (0 to 100); a confidence of 50 or less raises an error."""
        guess = next(iter(self.runs.detect(text)), None)
        if guess is None or guess["confidence"] <= 50:
            known = ", ".join(entry["code"] for entry in self.runs.languages) or "none"
            raise FieldError("source", f"the language could not be detected; set its code (served: {known})")
        return guess

    def is_same_language(self, source: str, target: str) -> bool:
        """Whether both codes mean the same served language; then texts are returned without translation."""
        codes = {code for entry in self.runs.languages for code in (entry["code"], *entry["targets"])}
        source, target = normalize_code(source), normalize_code(target)
        return source == target and source in map(normalize_code, codes)


def bearer(request: Request) -> str:
    """The API key in the header `Authorization: Bearer KEY`; empty if there is none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(service_of)]


async def key_required(request: Request, service: TheService) -> None:
    """A dependency of FastAPI: check the API key in the header."""
    service.require_key(request)
