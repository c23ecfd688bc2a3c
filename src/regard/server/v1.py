"""The routes of /v1: everything that Regard knows of a translation, and what other kinds of runs can do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic_core import to_json
from starlette.responses import StreamingResponse

from regard.server.bodies import JsonRoute
from regard.server.errors import ApiError, Json, as_problem, problem_body
from regard.server.files import UPLOAD, translate_upload
from regard.server.runs import ServedRun
from regard.server.schemas import (
    Classifications,
    ClassifyRequest,
    Error,
    InspectRequest,
    ModelFacts,
    ModelList,
    TaggedSentences,
    TagRequest,
    TranslateRequest,
    Translations,
)
from regard.server.service import Service, TheService, admitted, as_attachment, bearer
from regard.tasks.translate.translation import Translation

# Server-sent events: `data:` lines of JSON, and `data: [DONE]` at the end, as OpenAI's clients read them.


DONE = b"data: [DONE]\n\n"
MEDIA_TYPE = "text/event-stream"
UNBUFFERED = {"X-Accel-Buffering": "no"}
"""Asks nginx to pass each event on at once."""


async def stream_events(path: str, events: AsyncGenerator[Any, None]) -> StreamingResponse:
    """An answer of these events.

    The first one is waited for, so that what is wrong from the start is told by a status; what goes wrong later becomes
    an event, because the status is gone by then.
    """
    first = await anext(events, None)

    async def lines() -> AsyncIterator[bytes]:
        try:
            async with aclosing(events):
                if first is not None:
                    yield _line(first)
                async for event in events:
                    yield _line(event)
        except Exception as error:
            problem = as_problem(error)
            if problem.status_code == 500:
                raise
            yield _line(problem_body(path, problem))
        yield DONE

    return StreamingResponse(lines(), media_type=MEDIA_TYPE, headers=UNBUFFERED)


def _line(event: Any) -> bytes:
    return b"data: " + to_json(event, inf_nan_mode="null") + b"\n\n"


MISHAPS = (400, 401, 404, 408, 413, 415, 429, 503)
"""What may come instead of an answer."""
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": Error} for status in MISHAPS}
EVENT = {"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}}
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {"schema": EVENT}}}}

ONE_BY_ONE: dict[str, Any] = {"max_joined_tokens": 1}
"""Settings of a search that never takes two sentences together, so that a stream has something to give soon."""

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["Regard"], responses=ERRORS)
needs_key = [Depends(admitted)]


@router.get("/models", response_model=ModelList)
async def list_models(request: Request, service: TheService) -> Response:
    """The runs that are served. Needs no key, but a key that is sent must fit: clients try theirs here."""
    if bearer(request):
        service.admit(request)
    return Json({"object": "list", "data": [model_facts(served) for served in service.fleet.served.values()]})


@router.get("/models/{name}", response_model=ModelFacts)
async def show_model(name: str, request: Request, service: TheService) -> Response:
    """One of the runs that are served."""
    if bearer(request):
        service.admit(request)
    return Json(model_facts(service.named(name)))


def model_facts(served: ServedRun) -> dict[str, Any]:
    """A run, in OpenAI's form and with more."""
    return {"object": "model", "owned_by": "regard"} | served.about()


@router.post("/translate", response_model=Translations, responses=STREAM, dependencies=needs_key)
async def translate(asked: TranslateRequest, request: Request, service: TheService) -> Response:
    """Translate one text or several: alternatives, scores, flags, alignments; whole, or sentence by sentence."""
    texts = service.texts(asked.q)
    served = choose_translator(service, asked.model, asked.source, asked.target, texts)
    search = asked.search.given()
    if asked.stream:
        if asked.nbest > 1 or asked.align or asked.scores:
            raise ApiError(400, "stream: gives the best translation alone, without align, scores or nbest")
        return await stream_events(request.url.path, sentences(service, served, texts, search))
    answers = await served.translate(
        texts,
        nbest=service.nbest(asked.nbest, "nbest"),
        align=asked.align,
        details=asked.scores,
        deadline=service.settings.timeout,
        **search,
    )
    service.metrics.wrote(served.name, answers)
    facts = [translation_facts(answer, scores=asked.scores) for answer in answers]
    return Json({"model": served.name, "translations": facts})


def translation_facts(answer: Translation, *, scores: bool = False) -> dict[str, Any]:
    """A translation for JSON, without the figures of its tokens where nobody asked: one engine has them anyway."""
    return answer.as_dict(scores=scores)


def choose_translator(service: Service, model: str, source: str, target: str, texts: Sequence[str]) -> ServedRun:
    """The run for a translation: by its name, else by the languages, else the only one."""
    if model or not (source or target):
        return service.chosen(model, "translate")
    if source in ("", "auto"):
        found = sorted({guess["language"] for guess in service.detect(texts or [""])})
        if len(found) > 1:
            raise ApiError(400, f"q: texts in several languages ({', '.join(found)}); send them apart", param="q")
        [source] = found
    return service.fleet.by_pair(source, target)


async def sentences(
    service: Service, served: ServedRun, texts: Sequence[str], search: dict[str, Any]
) -> AsyncGenerator[dict[str, Any], None]:
    """Events: the place of the text, and the translation of its next sentence."""
    for place, text in enumerate(texts):
        async for answer in served.pieces(text, deadline=service.settings.timeout, **search, **ONE_BY_ONE):
            service.metrics.wrote(served.name, [answer])
            yield {"model": served.name, "index": place, "translation": translation_facts(answer)}


@router.post("/inspect", response_model=dict[str, Any], dependencies=needs_key)
async def inspect(asked: InspectRequest, service: TheService) -> Response:
    """Look inside one translation: every head, the search, the likeliest next tokens; with heads switched off, too."""
    served = service.chosen(asked.model, "translate")
    for field, text in (("text", asked.text), ("target", asked.target or "")):
        if len(text) > service.settings.traced:
            most = f"{field}: at most {service.settings.traced} characters to look inside, not {len(text):,}"
            raise ApiError(400, most, param=field)
    found = await served.inspect(
        asked.text, asked.target, off=asked.off, quick=asked.quick, deadline=service.settings.timeout
    )
    return Json(found)


@router.post("/classify", response_model=Classifications, dependencies=needs_key)
async def classify(asked: ClassifyRequest, service: TheService) -> Response:
    """Classify one text or several; say why."""
    texts = service.texts(asked.q)
    served = service.chosen(asked.model, "classify")
    verdicts = await served.classify(texts, explain=asked.explain, deadline=service.settings.timeout)
    return Json({"model": served.name, "verdicts": [verdict.as_dict() for verdict in verdicts]})


@router.post("/tag", response_model=TaggedSentences, dependencies=needs_key)
async def tag(asked: TagRequest, service: TheService) -> Response:
    """Label the words of one sentence or several, and the spans that they make; say why."""
    texts = service.texts(asked.q)
    served = service.chosen(asked.model, "tag")
    found = await served.tag(texts, explain=asked.explain, deadline=service.settings.timeout)
    return Json({"model": served.name, "tagged": [one.as_dict() for one in found]})


FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}


@router.post("/documents", response_class=Response, responses=FILE, openapi_extra=UPLOAD)
async def translate_document(request: Request, service: TheService) -> Response:
    """Translate a file: plain text, HTML, Markdown, subtitles (SRT) or messages (PO); the answer is the file."""
    name, made = await translate_upload(request, service)
    headers = as_attachment(name) | made.headers()
    return Response(made.as_bytes(), media_type="application/octet-stream", headers=headers)
