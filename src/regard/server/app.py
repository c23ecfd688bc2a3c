"""The application: routes, and around them, from the outside in, headers, records, the door, bounds, a shortcut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from regard import __version__
from regard.server import libretranslate, v1
from regard.server import openai as chat
from regard.server.api_keys import ApiKeys
from regard.server.errors import add_problem_handlers
from regard.server.fast_path import FastPath, FastRoute
from regard.server.metrics import CONTENT_TYPE, ServerMetrics
from regard.server.middleware import HostCheck, RequestLimits, RequestLog, SafeHeaders
from regard.server.page import page_routes
from regard.server.reference import describe_api, reference_routes
from regard.server.runs import ServedRuns
from regard.server.schemas import PlainTranslateRequest, TranslateRequest
from regard.server.service import Service, TheService
from regard.server.settings import ServerSettings
from regard.system import give_back

# Memory of a process that lives long and is asked for sentences of every length.


INTERVAL = 10.0
"""Seconds. Giving back takes some milliseconds, in which no thread can ask for memory."""


async def give_back_now_and_then(worked: Callable[[], int], every: float = INTERVAL) -> None:
    """Give memory back every so many seconds in which something was done; `worked` counts what was, since the start."""
    before = worked()
    while True:
        await asyncio.sleep(every)
        if (now := worked()) != before:
            before = now
            await asyncio.to_thread(give_back)


NO_TELEMETRY: Any = {"auto_configure": False, "tracing": False, "metrics": False, "logs": False}
"""FastAPI can tell collectors of requests and their contents. Ours tells nobody, whatever the environment says."""

BUSY = (
    FastRoute("/translate", libretranslate.translate, PlainTranslateRequest),
    FastRoute("/v1/translate", v1.translate, TranslateRequest, key_first=True),
)
"""Routes that most requests are for."""


def create_app(fleet: ServedRuns, settings: ServerSettings) -> FastAPI:
    """The server as an ASGI application. When it stops, the fleet finishes what it took."""
    keys = ApiKeys.read(settings.keys) if settings.keys else None
    service = Service(fleet, settings, keys, ServerMetrics(fleet))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tidying = asyncio.create_task(give_back_now_and_then(fleet.batches))
        yield
        tidying.cancel()
        await fleet.close()

    app = FastAPI(
        title="Regard",
        version=__version__,
        summary="Translation and other attention models, with a look inside.",
        docs_url=None,  # these pages load scripts from other hosts; /docs is ours
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=NO_TELEMETRY,
        middleware=_middleware(service),
    )
    app.state.service = service
    add_problem_handlers(app)
    app.add_api_route("/metrics", give_metrics, include_in_schema=False)
    for router in (libretranslate.router, v1.router, chat.router, page_routes()):
        app.include_router(router)
    describe_api(app, with_keys=keys is not None)
    app.include_router(reference_routes(app))
    return app


def _middleware(service: Service) -> list[Middleware]:
    settings = service.settings
    layers = [
        Middleware(SafeHeaders),
        Middleware(RequestLog, metrics=service.metrics),
        Middleware(HostCheck, settings=settings),
    ]
    if settings.allow_origin:
        headers = ["Authorization", "Content-Type"]
        layers.append(
            Middleware(CORSMiddleware, allow_origins=settings.allow_origin, allow_methods=["*"], allow_headers=headers)
        )
    bounds = Middleware(RequestLimits, settings=settings, full_for=service.fleet.full_for)
    return [*layers, bounds, Middleware(FastPath, service=service, routes=BUSY)]


async def give_metrics(request: Request, service: TheService) -> Response:
    """The figures for Prometheus."""
    service.admit(request)
    return Response(service.metrics.exposition(), media_type=CONTENT_TYPE)
