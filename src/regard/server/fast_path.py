"""A fast path for JSON requests to the busiest routes, without the overhead of the framework.

Matching routes and resolving dependencies cost more than a sentence's share of a batch. Requests and responses are the
same as those of the framework's routes, which describe the API and accept forms.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.server.bodies import JSON, JsonRequest, content_type
from regard.server.errors import EXPECTED, error_response
from regard.server.service import Service

Endpoint = Callable[[Any, Request, Service], Awaitable[Response]]


@dataclass(frozen=True)
class FastRoute:
    """A route whose endpoint takes a JSON body, the request and the service."""

    path: str
    endpoint: Endpoint
    body: type[BaseModel]
    key_first: bool = False
    """Whether the key in the header is checked before the body; if not, the endpoint checks it."""

    @cached_property
    def reader(self) -> TypeAdapter[BaseModel]:
        """Validates the body."""
        return TypeAdapter(self.body)


class FastPath:
    """ASGI middleware, directly outside of the framework."""

    def __init__(self, app: ASGIApp, service: Service, routes: Iterable[FastRoute]):
        self.app, self.service, self.routes = app, service, {route.path: route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a JSON request to a fast route; pass on all others."""
        route = self._route(scope)
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        request = JsonRequest(scope, receive)
        try:
            if route.key_first:
                self.service.require_key(request)
            answer = await route.endpoint(await _read(request, route.reader), request, self.service)
        except EXPECTED as error:
            answer = error_response(route.path, error)
        await answer(scope, receive, send)

    def _route(self, scope: Scope) -> FastRoute | None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        route = self.routes.get(scope["path"]) if is_post else None
        return route if route and content_type(Request(scope)) == JSON else None


async def _read(request: JsonRequest, reader: TypeAdapter[BaseModel]) -> BaseModel:
    """The validated body, or the same error as FastAPI's."""
    if not await request.body():
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
    try:
        return reader.validate_python(await request.json(), from_attributes=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([one | {"loc": ("body", *one["loc"])} for one in found]) from None
