"""The routes of /v1: one per task, translation with all its options, inspections, files, and what is served."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from types import ModuleType
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic_core import to_json
from starlette.responses import StreamingResponse

from regard.server.bodies import JsonRoute
from regard.server.errors import ApiError, Json, error_body, to_api_error
from regard.server.files import UPLOAD, as_attachment, translate_upload
from regard.server.schemas import Error, ModelFacts, ModelList, Results, TaskList
from regard.server.served_run import ServedRun
from regard.server.service import Service, TheService, bearer, key_required
from regard.server.task_apis import served_tasks
from regard.server.translation import ServedTranslator
from regard.tasks import find
from regard.tasks.api import InspectRequest, TaskRequest
from regard.tasks.translate.api import Request as TranslateRequest
from regard.tasks.translate.api import Results as Translations

DONE = b"data: [DONE]\n\n"
MEDIA_TYPE = "text/event-stream"
UNBUFFERED = {"X-Accel-Buffering": "no"}
"""Tells nginx to forward each event at once."""

ERROR_STATUSES = (400, 401, 404, 408, 413, 415, 429, 503)
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": Error} for status in ERROR_STATUSES}
EVENT = {"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}}
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {"schema": EVENT}}}}
FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}

ONE_SENTENCE: dict[str, Any] = {"max_joined_tokens": 1}
"""Search settings that never join two sentences, so that a stream has its first result early."""

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["Regard"], responses=ERRORS)
needs_key = [Depends(key_required)]


# ---------------------------------------------------------------------------------------------------------------------
# What is served


@router.get("/models", response_model=ModelList)
async def list_models(request: Request, service: TheService) -> Response:
    """List the served runs. Needs no key, but a key that is sent must be valid: clients test theirs here."""
    if bearer(request):
        service.require_key(request)
    return Json({"object": "list", "data": [model_facts(served) for served in service.runs.served.values()]})


@router.get("/models/{name}", response_model=ModelFacts)
async def show_model(name: str, request: Request, service: TheService) -> Response:
    """Describe one served run."""
    if bearer(request):
        service.require_key(request)
    return Json(model_facts(service.named(name)))


def model_facts(served: ServedRun) -> dict[str, Any]:
    """A run in OpenAI's format, with more fields."""
    return {"object": "model", "owned_by": "regard"} | served.about()


@router.get("/tasks", response_model=TaskList)
async def list_tasks(service: TheService) -> Response:
    """List the tasks that can be served, with the served runs of each. The web page makes its views from this."""
    tasks = [
        {
            "name": name,
            "help": find(name).help,
            "chat": hasattr(api, "stream"),
            "inspect": hasattr(api, "inspect"),
            "models": [served.name for served in service.runs.served.values() if served.task == name],
        }
        for name, api in served_tasks().items()
    ]
    return Json({"data": tasks})


# ---------------------------------------------------------------------------------------------------------------------
# Tasks


def task_routes() -> APIRouter:
    """POST /v1/<task> for every registered task whose api.py has `answer`, plugins included."""
    routes = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["Regard"], responses=ERRORS)
    for name, api in served_tasks().items():
        if hasattr(api, "answer"):
            _add_task_route(routes, name, api)
    return routes


def _add_task_route(routes: APIRouter, name: str, api: ModuleType) -> None:
    body: type[TaskRequest] = api.Request

    async def answer(asked: TaskRequest, service: TheService) -> Response:
        service.check_request(asked)
        served = service.choose(asked.model, name)
        results = await served.answer(asked, deadline=service.settings.timeout)
        service.metrics.count_texts(served.name, len(results))
        return Json({"model": served.name, "results": results})

    answer.__annotations__["asked"] = body
    answer.__name__, answer.__doc__ = name, body.__doc__
    routes.add_api_route(f"/{name}", answer, methods=["POST"], response_model=Results, dependencies=needs_key)


@router.post("/translate", response_model=Translations, responses=STREAM, dependencies=needs_key)
async def translate(asked: TranslateRequest, request: Request, service: TheService) -> Response:
    """Translate one text or several, with alternatives, scores, flags and alignments; at once or per sentence."""
    texts = service.check_texts(asked.q)
    served = service.choose_translator(asked.model, asked.source, asked.target, texts)
    search = asked.search.given()
    if asked.stream:
        if asked.nbest > 1 or asked.align or asked.scores:
            raise ApiError(400, "stream: cannot be combined with align, scores or nbest", param="stream")
        return await stream_events(request.url.path, sentences(service, served, texts, search))
    found = await served.translate(
        texts,
        nbest=service.check_nbest(asked.nbest, "nbest"),
        align=asked.align,
        details=asked.scores,
        deadline=service.settings.timeout,
        **search,
    )
    service.metrics.count_translations(served.name, found)
    return Json({"model": served.name, "results": [one.as_dict(scores=asked.scores) for one in found]})


async def sentences(
    service: Service, served: ServedTranslator, texts: Sequence[str], search: dict[str, Any]
) -> AsyncGenerator[dict[str, Any], None]:
    """Events with the index of the text and the translation of its next sentence."""
    for index, text in enumerate(texts):
        async for found in served.pieces(text, deadline=service.settings.timeout, **search, **ONE_SENTENCE):
            service.metrics.count_translations(served.name, [found])
            yield {"model": served.name, "index": index, "result": found.as_dict(scores=False)}


@router.post("/inspect", response_model=dict[str, Any], dependencies=needs_key)
async def inspect(asked: InspectRequest, service: TheService) -> Response:
    """Inspect what a model computes for one text: attention heads, search, next tokens; heads may be disabled."""
    served = service.choose_inspected(asked.model)
    most = service.settings.traced
    for field, text in (("text", asked.text), ("target", asked.target or "")):
        if len(text) > most:
            message = f"{field}: at most {most} characters can be inspected, not {len(text):,}"
            raise ApiError(400, message, param=field)
    return Json(await served.inspect(asked, deadline=service.settings.timeout))


@router.post("/documents", response_class=Response, responses=FILE, openapi_extra=UPLOAD)
async def translate_document(request: Request, service: TheService) -> Response:
    """Translate a file, e.g. text, HTML, Markdown, subtitles or PO messages. The response is the translated file."""
    name, made = await translate_upload(request, service)
    headers = as_attachment(name) | made.headers()
    return Response(made.as_bytes(), media_type="application/octet-stream", headers=headers)


# ---------------------------------------------------------------------------------------------------------------------
# Server-sent events


async def stream_events(path: str, events: AsyncGenerator[Any, None]) -> StreamingResponse:
    """A response of server-sent events: lines of JSON after `data:`, then `data: [DONE]`, as OpenAI's clients expect.

    The first event is awaited before the response starts, so that an error before it becomes an HTTP status. A later
    error becomes an event, because the status is sent already.
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
            found = to_api_error(error)
            if found.status_code == 500:
                raise
            yield _line(error_body(path, found))
        yield DONE

    return StreamingResponse(lines(), media_type=MEDIA_TYPE, headers=UNBUFFERED)


def _line(event: Any) -> bytes:
    return b"data: " + to_json(event, inf_nan_mode="null") + b"\n\n"
