"""The way that most requests take: a JSON body to a busy route, answered without the framework's detours.

Matching routes, resolving dependencies and opening what may have to be closed cost more than a sentence's share of a
batch. What is asked and what is answered is the same as by the long way, which describes the API and takes forms.
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
from regard.server.errors import EXPECTED, problem_answer
from regard.server.service import Service

Endpoint = Callable[[Any, Request, Service], Awaitable[Response]]


@dataclass(frozen=True)
class FastRoute:
    """A route that takes a JSON body, the request and the service, and nothing else."""

    path: str
    endpoint: Endpoint
    body: type[BaseModel]
    key_first: bool = False
    """Whether the key in the head is looked at before the body; else the endpoint asks for it."""

    @cached_property
    def reader(self) -> TypeAdapter[BaseModel]:
        """Makes the body of what JSON says."""
        return TypeAdapter(self.body)


class FastPath:
    """ASGI middleware, right before the framework."""

    def __init__(self, app: ASGIApp, service: Service, routes: Iterable[FastRoute]):
        self.app, self.service, self.routes = app, service, {route.path: route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, if it is a busy route that is asked in JSON; else pass on."""
        route = self._route(scope)
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        request = JsonRequest(scope, receive)
        try:
            if route.key_first:
                self.service.admit(request)
            answer = await route.endpoint(await _read(request, route.reader), request, self.service)
        except EXPECTED as error:
            answer = problem_answer(route.path, error)
        await answer(scope, receive, send)

    def _route(self, scope: Scope) -> FastRoute | None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        route = self.routes.get(scope["path"]) if is_post else None
        return route if route and content_type(Request(scope)) == JSON else None


async def _read(request: JsonRequest, reader: TypeAdapter[BaseModel]) -> BaseModel:
    """What is asked, or a complaint as FastAPI words it."""
    if not await request.body():
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
    try:
        return reader.validate_python(await request.json(), from_attributes=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([one | {"loc": ("body", *one["loc"])} for one in found]) from None
