"""Whatever goes wrong becomes one JSON answer: a status, one sentence, no traceback.

The routes of /v1 speak OpenAI's form, all others LibreTranslate's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from regard.errors import RegardError
from regard.server.batching import Closing, QueueFull, TooLate
from regard.server.schemas import UNKNOWN_FIELD

SENTENCES = {404: "there is nothing at this address", 405: "this address does not take this method"}
KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""OpenAI's names for what kind of error it is; what is not named here is the request's or the server's fault."""


class ApiError(HTTPException):
    """An answer other than the one hoped for. Starlette's exception, which passes through FastAPI as it is."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(status, message, headers)
        self.param, self.code = param, code


class Json(Response):
    """A JSON answer; numbers that JSON cannot write become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The answer's bytes."""
        return to_json(content, inf_nan_mode="null")


EXPECTED = (
    HTTPException, RequestValidationError, QueueFull, TooLate, Closing, RegardError, TimeoutError, ClientDisconnect,
)  # fmt: skip
"""Exceptions of the routes that say what the answer is."""
LEFT = 499
"""The status, for the log alone, of an answer that nobody is there to read."""


def as_problem(error: Exception) -> ApiError:
    """The problem that an exception stands for. Unknown ones are our fault, and say nothing of themselves."""
    match error:
        case ApiError():
            return error
        case HTTPException():
            return ApiError(
                error.status_code, SENTENCES.get(error.status_code, str(error.detail)), headers=error.headers
            )
        case RequestValidationError():
            return _invalid(error.errors())
        case QueueFull():
            wait = str(max(1, math.ceil(error.retry_after)))
            return ApiError(429, "too many requests are waiting; try again later", headers={"Retry-After": wait})
        case TooLate() | TimeoutError():
            return ApiError(503, "the server could not answer in time; try again later", headers={"Retry-After": "1"})
        case Closing():
            return ApiError(503, "the server is shutting down; try again later", headers={"Retry-After": "5"})
        case RegardError():
            return ApiError(400, str(error))
        case _:
            return ApiError(500, "something went wrong inside the server; its log says more")


def _invalid(errors: Sequence[Any]) -> ApiError:
    """The complaint about a body that says most exactly where, without what was sent."""
    first: Mapping[str, Any] = max(errors, key=lambda error: len(error["loc"]), default={})
    # The place of the field, without the branches of a union that pydantic tried.
    loc = (*first.get("loc", ()), first["ctx"]["field"]) if first.get("type") == UNKNOWN_FIELD else first.get("loc", ())
    place = [str(part) for part in loc if isinstance(part, int) or str(part).isidentifier()]
    names = [part for part in place if part not in ("body", "str", "list")]
    where = ".".join(names)
    return ApiError(400, f"{where or 'the body'}: {first.get('msg', 'invalid')}", param=where or None)


def problem_body(path: str, problem: ApiError) -> dict[str, Any]:
    """The JSON that tells of a problem, as clients of that path expect it."""
    if not path.startswith("/v1"):
        return {"error": problem.detail}
    otherwise = "server_error" if problem.status_code >= 500 else "invalid_request_error"
    kind = KINDS.get(problem.status_code, otherwise)
    return {"error": {"message": problem.detail, "type": kind, "param": problem.param, "code": problem.code}}


def problem_answer(path: str, error: Exception) -> Response:
    """The answer for an exception."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=LEFT)
    problem = as_problem(error)
    return Json(problem_body(path, problem), problem.status_code, dict(problem.headers or {}))


def add_problem_handlers(app: FastAPI) -> None:
    """Let every expected exception of the routes become such an answer."""

    async def handle(request: Request, error: Exception) -> Response:
        return problem_answer(request.url.path, error)

    for kind in EXPECTED:
        app.add_exception_handler(kind, handle)
