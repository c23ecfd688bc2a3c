"""The routes under /v1: one per task, inspections, files, lists of models and tasks; and server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.responses import StreamingResponse

from regard.server.bodies import JsonRoute, PictureRoute, picture_form
from regard.server.errors import Json, error_body, to_api_error
from regard.server.files import UPLOAD, as_attachment, translate_upload
from regard.server.page import has_view
from regard.server.runs import ServedRun, converses, served_tasks, takes_pictures
from regard.server.service import Service, TheService, bearer, key_required
from regard.tasks import find
from regard.tasks.api import FieldError, InspectRequest, TaskRequest

# ---------------------------------------------------------------------------------------------------------------------
# Formats of the responses. They only describe the API (/openapi.json); the tests check that the responses match.


class Results(BaseModel):
    """One result per text or conversation of the request. The fields of a result depend on the task."""

    model: str
    results: list[dict[str, Any]]


class ModelFacts(BaseModel):
    """A served run: OpenAI's fields of a model, and its task, languages, architecture, size and scores."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: str
    source: str
    target: str
    arch: str
    parameters: int
    scores: dict[str, Any] = Field({}, description="Scores on held-out data, with their signatures.")
    generation: str = Field("", description="Start of the SHA-256 of the weights that answer.")
    facts: dict[str, Any] = Field(
        {}, description="Numbers of the task, e.g. of the `questions` and `answers` of a knowledge base."
    )


class ModelList(BaseModel):
    """All served runs, in OpenAI's format of a list of models."""

    object: Literal["list"]
    data: list[ModelFacts]


class TaskFacts(BaseModel):
    """A task, and the served runs that were trained for it."""

    name: str
    help: str
    view: bool = Field(description="Whether it has views of its own for the web page (/page/<task>/view.js).")
    chat: bool = Field(description="Whether its runs reply to conversations (POST /v1/chat/completions).")
    inspect: bool = Field(description="Whether its runs can be inspected (POST /v1/inspect).")
    models: list[str]


class TaskList(BaseModel):
    """All tasks that this server can serve, with the served runs of each."""

    data: list[TaskFacts]


class ErrorFacts(BaseModel):
    """The message, type, invalid field (`param`) and code of an error, in OpenAI's format."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """The body of an error response in OpenAI's format."""

    error: ErrorFacts


# ---------------------------------------------------------------------------------------------------------------------
# Models and tasks


Responses = dict[int | str, dict[str, Any]]
"""Descriptions of responses by status, in FastAPI's format."""
ERRORS: Responses = {status: {"model": Error} for status in (400, 401, 404, 408, 413, 415, 429, 503)}
EVENT = {"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}}
EVENTS = "text/event-stream"
STREAM: Responses = {200: {"content": {EVENTS: {"schema": EVENT}}}}
FILE: Responses = {200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["Regard"], responses=ERRORS)
needs_key = [Depends(key_required)]


@router.get("/models", response_model=ModelList)
async def list_models(request: Request, service: TheService) -> Response:
    """List the served runs. No key is required, but a wrong key is an error, so that clients can test their key."""
    if bearer(request):
        service.require_key(request)
    return Json({"object": "list", "data": [served.about for served in service.runs.served.values()]})


@router.get("/models/{name}", response_model=ModelFacts)
async def show_model(name: str, request: Request, service: TheService) -> Response:
    """Describe one served run."""
    if bearer(request):
        service.require_key(request)
    return Json(service.named(name).about)


@router.get("/tasks", response_model=TaskList)
async def list_tasks(service: TheService) -> Response:
    """List the tasks that can be served, with the served runs of each task. The web page shows one view per task."""
    tasks = [
        TaskFacts(
            name=name,
            help=find(name).help,
            view=has_view(name),
            chat=converses(api),
            inspect=hasattr(api, "inspect"),
            models=[served.name for served in service.runs.served.values() if served.task == name],
        )
        for name, api in served_tasks().items()
    ]
    return Json({"data": tasks})


# ---------------------------------------------------------------------------------------------------------------------
# Tasks


def task_routes() -> APIRouter:
    """The routes POST /v1/<task>, one for each registered task that has an api.py, including tasks of plugins."""
    routes = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["Regard"], responses=ERRORS)
    for name, api in served_tasks().items():
        routes.add_api_route(
            f"/{name}",
            _task_endpoint(name, api.Request),
            methods=["POST"],
            response_model=getattr(api, "Results", Results),
            responses=STREAM if "stream" in api.Request.model_fields else None,
            dependencies=needs_key,
            route_class_override=PictureRoute if takes_pictures(api) else None,
            openapi_extra=picture_form(api.Request) if takes_pictures(api) else None,
        )
    return routes


def _task_endpoint(task: str, body: type[TaskRequest]) -> Callable[..., Awaitable[Response]]:
    writes = find(task).writes

    def tokens(result: dict[str, Any]) -> int:
        return len(result.get("tokens", ())) if writes else 0  # a tagger's tokens are its input

    async def answer(asked: TaskRequest, request: Request, service: TheService) -> Response:
        field, texts = asked.texts()
        service.check_texts(texts, field, asked.limits)
        service.check_pictures(asked)
        served = service.choose(asked, task)
        if getattr(asked, "stream", False):
            return await stream_events(request.url.path, events(asked, served, service))
        service.check_nbest(getattr(asked, "nbest", 1), "nbest")
        results = await served.handler.answer(asked, deadline=service.settings.timeout)
        service.metrics.count_texts(served.name, list(map(tokens, results)))
        return Json({"model": served.name, "results": results})

    async def events(asked: TaskRequest, served: ServedRun, service: Service) -> AsyncGenerator[dict[str, Any], None]:
        async for index, result in served.handler.stream_results(asked, deadline=service.settings.timeout):
            service.metrics.count_texts(served.name, [tokens(result)])
            yield {"model": served.name, "index": index, "result": result}

    answer.__annotations__["asked"] = body
    answer.__name__, answer.__doc__ = task, body.__doc__
    return answer


@router.post("/inspect", response_model=dict[str, Any], dependencies=needs_key)
async def inspect(asked: InspectRequest, service: TheService) -> Response:
    """Show what a model computes for one text: attention heads, search, next tokens. Heads can be disabled."""
    served = service.choose_inspected(asked.model)
    most = service.settings.traced
    for field, text in (("text", asked.text), ("target", asked.target or "")):
        if len(text) > most:
            raise FieldError(field, f"at most {most} characters can be inspected, not {len(text):,}")
    return Json(await served.inspect(asked, deadline=service.settings.timeout))


@router.post("/documents", response_class=Response, responses=FILE, openapi_extra=UPLOAD)
async def translate_document(request: Request, service: TheService) -> Response:
    """Translate a file: text, HTML, Markdown, subtitles or PO messages. The response is the translated file."""
    made = await translate_upload(request, service)
    headers = as_attachment(made.name) | made.headers
    return Response(made.content, media_type="application/octet-stream", headers=headers)


# ---------------------------------------------------------------------------------------------------------------------
# Server-sent events


async def stream_events(path: str, events: AsyncGenerator[Any, None]) -> StreamingResponse:
    """A response of server-sent events: `data:` and JSON for each event, then `data: [DONE]`, as in OpenAI's API.

    The response starts after the first event is computed, so that an earlier error becomes an HTTP status. A later
    error becomes an event, because the status has already been sent; `path` determines the format of this error.
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
        yield b"data: [DONE]\n\n"

    unbuffered = {"X-Accel-Buffering": "no"}  # tells nginx to forward each event at once
    return StreamingResponse(lines(), media_type=EVENTS, headers=unbuffered)


def _line(event: Any) -> bytes:
    return b"data: " + to_json(event, inf_nan_mode="null") + b"\n\n"
