"""Errors as JSON responses: a status and one sentence, without a traceback.

Routes under /v1 use OpenAI's error format; all others use LibreTranslate's.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from regard.errors import RegardError, RunError
from regard.server.batching import Closing, QueueFull, TooLate
from regard.tasks.api import UNKNOWN_FIELD, FieldError

logger = logging.getLogger("regard.server")

MESSAGES = {404: "there is nothing at this address; see /docs", 405: "this method is not allowed here; see /docs"}
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""OpenAI's error types by status; for any other status it is "invalid_request_error" or "server_error"."""


class ApiError(HTTPException):
    """An error that becomes an HTTP response. `param` (the invalid field) and `code` are fields of OpenAI's format."""

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
    """A JSON response; NaN and infinity become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content, inf_nan_mode="null")


EXPECTED = (
    HTTPException, RequestValidationError, QueueFull, TooLate, Closing, RegardError, TimeoutError, ClientDisconnect,
)  # fmt: skip
"""Exceptions that are converted to responses."""


def to_api_error(error: Exception) -> ApiError:
    """Convert any exception to an `ApiError`. An unexpected exception becomes status 500 without details."""
    match error:
        case ApiError():
            return error
        case HTTPException():
            message = MESSAGES.get(error.status_code, str(error.detail))
            return ApiError(error.status_code, message, headers=error.headers)
        case RequestValidationError():
            return _invalid(error.errors())
        case QueueFull():
            wait = str(max(1, math.ceil(error.retry_after)))
            return ApiError(429, "too many requests are waiting; try again later", headers={"Retry-After": wait})
        case TooLate() | TimeoutError():
            return ApiError(503, "the server could not answer in time; try again later", headers={"Retry-After": "1"})
        case Closing():
            return ApiError(503, "the server is shutting down; try again later", headers={"Retry-After": "5"})
        case RunError():  # its message contains paths of the server, which clients must not see
            logger.error("a run cannot be used: %s", error)
            return ApiError(503, "the files of this model cannot be read; see the server's log")
        case RegardError():
            field = error.field if isinstance(error, FieldError) else None
            return ApiError(400, str(error), param=field, code=error.code)
        case _:
            return ApiError(500, "internal error; see the server's log")


def _invalid(errors: Sequence[Any]) -> ApiError:
    """Convert the most deeply nested of pydantic's errors to an `ApiError` (400), without the invalid value."""
    first: Mapping[str, Any] = max(errors, key=lambda error: len(error["loc"]), default={})
    # pydantic's location also names the branches of a union that it tried, such as "str"; these are removed.
    loc = (*first.get("loc", ()), first["ctx"]["field"]) if first.get("type") == UNKNOWN_FIELD else first.get("loc", ())
    place = [str(part) for part in loc if isinstance(part, int) or str(part).isidentifier()]
    where = ".".join(part for part in place if part not in ("body", "str", "list"))
    return ApiError(400, f"{where or 'the body'}: {first.get('msg', 'invalid')}", param=where or None)


def error_body(path: str, error: ApiError) -> dict[str, Any]:
    """The JSON body of an error response: OpenAI's format if the URL path is under /v1, else LibreTranslate's."""
    if not path.startswith("/v1"):
        return {"error": error.detail}
    kind = TYPES.get(error.status_code, "server_error" if error.status_code >= 500 else "invalid_request_error")
    return {"error": {"message": error.detail, "type": kind, "param": error.param, "code": error.code}}


def error_response(path: str, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # nobody receives it; the status appears in the log
    found = to_api_error(error)
    return Json(error_body(path, found), found.status_code, dict(found.headers or {}))


async def handle_error(request: Request, error: Exception) -> Response:
    return error_response(request.url.path, error)
