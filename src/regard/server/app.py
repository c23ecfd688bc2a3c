"""The ASGI application: routes, middleware, and a fast path for JSON requests to the most used routes.

FastAPI's routing and dependencies take longer than the model takes for one sentence of a batch. The fast path calls the
same endpoints without FastAPI. FastAPI's own routes remain for the API description and for forms.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client import generate_latest
from pydantic import BaseModel, ValidationError
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from regard import __version__
from regard.server import completions, libretranslate, openai, v1
from regard.server.api_keys import ApiKeys
from regard.server.bodies import JSON, JsonRequest, content_type
from regard.server.errors import EXPECTED, error_response, handle_error
from regard.server.metrics import CONTENT_TYPE, ServerMetrics
from regard.server.middleware import HostCheck, RequestLimits, RequestLog
from regard.server.page import page_routes
from regard.server.reference import describe_api
from regard.server.runs import ServedRuns, served_tasks, takes_pictures
from regard.server.service import Service, TheService
from regard.server.settings import ServerSettings
from regard.system import give_back

RELEASE_INTERVAL = 10.0
"""Seconds between releases of free memory. During a release (some milliseconds), no thread can allocate memory."""


def create_app(runs: ServedRuns, settings: ServerSettings) -> FastAPI:
    """Create the ASGI application that serves `runs`. On shutdown, it first completes the accepted requests."""
    keys = ApiKeys.read(settings.keys) if settings.keys else None
    tasks = v1.task_routes()
    service = Service(runs, settings, keys, ServerMetrics(runs))

    layers = [Middleware(RequestLog, metrics=service.metrics), Middleware(HostCheck, settings=settings)]
    if origins := settings.allow_origin:
        headers = ["Authorization", "Content-Type"]
        layers.append(Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=headers))
    pictures = {f"/v1/{name}" for name, api in served_tasks().items() if takes_pictures(api)}
    layers += [
        Middleware(RequestLimits, settings=settings, full_for=runs.full_for, keys=keys, pictures=pictures),
        Middleware(FastPath, service=service, routes=fast_routes(tasks)),
    ]

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        releasing = asyncio.create_task(release_memory_regularly(runs.batches))
        following = asyncio.create_task(runs.follow())
        yield
        releasing.cancel()
        following.cancel()
        await runs.close()

    async def reload() -> None:
        """Read the API keys and open the runs again."""
        if keys is not None:
            keys.reload()
        await runs.reload()

    app = FastAPI(
        title="Regard",
        version=__version__,
        summary="Translation and other attention models, and what they compute.",
        docs_url=None,  # FastAPI's pages load scripts from other hosts; reference.py has our own /docs
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        # FastAPI must not send data about requests to collectors, even if environment variables say so.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
        middleware=layers,
        exception_handlers=dict.fromkeys(EXPECTED, handle_error),
    )
    app.state.service = service
    app.state.reload = reload
    app.add_api_route("/metrics", give_metrics, include_in_schema=False)
    for router in (libretranslate.router, v1.router, tasks, openai.router, completions.router, page_routes()):
        app.include_router(router)
    describe_api(app, with_keys=keys is not None)
    return app


async def release_memory_regularly(batches: Callable[[], int], every: float = RELEASE_INTERVAL) -> None:
    """Every `every` seconds, return free memory to the system if `batches()` has grown: batches fragment memory."""
    before = batches()
    while True:
        await asyncio.sleep(every)
        if (now := batches()) != before:
            before = now
            await asyncio.to_thread(give_back)


async def give_metrics(request: Request, service: TheService) -> Response:
    service.require_key(request)
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE)


# ---------------------------------------------------------------------------------------------------------------------
# The fast path


@dataclass(frozen=True)
class FastRoute:
    """A route that is answered without FastAPI: `endpoint` gets the parsed body, the request and the service."""

    path: str
    endpoint: Callable[[Any, Request, Service], Awaitable[Response]]
    body: type[BaseModel]
    key_first: bool
    """Whether the API key in the header is checked before the body is parsed; otherwise the endpoint checks the key."""

    async def answer(self, request: JsonRequest, service: Service) -> Response:
        """The response of the endpoint. An invalid body raises the same error as in FastAPI."""
        if self.key_first:
            service.require_key(request)
        if not await request.body():
            raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
        try:
            asked = self.body.model_validate(await request.json(), from_attributes=True)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            raise RequestValidationError([one | {"loc": ("body", *one["loc"])} for one in found]) from None
        return await self.endpoint(asked, request, service)


def fast_routes(tasks: APIRouter) -> list[FastRoute]:
    """Routes that are answered without FastAPI: /translate (LibreTranslate's API), and POST /v1/<task> from `tasks`."""
    found = [FastRoute("/translate", libretranslate.translate, libretranslate.PlainTranslateRequest, key_first=False)]
    for route in tasks.routes:
        assert isinstance(route, APIRoute)
        found.append(FastRoute(route.path, route.endpoint, route.endpoint.__annotations__["asked"], key_first=True))
    return found


class FastPath:
    """ASGI middleware that answers JSON POST requests to `routes`, and passes all other requests on to FastAPI."""

    def __init__(self, app: ASGIApp, service: Service, routes: Iterable[FastRoute]):
        self.app, self.service, self.routes = app, service, {route.path: route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        route = self.routes.get(scope["path"]) if is_post else None
        if route is None or content_type(Request(scope)) != JSON:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        try:
            answer = await route.answer(JsonRequest(scope, receive), self.service)
        except EXPECTED as error:
            answer = error_response(route.path, error)
        await answer(scope, receive, send)
