"""Bodies of requests: JSON for all routes; forms too where LibreTranslate's clients send them.

A form is turned into the JSON that says the same, and from there on there is one way. What is neither is refused (415).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import Message

from regard.server.errors import ApiError

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
MOST_FIELDS = 1000
NUMBERS = frozenset({"alternatives"})
"""Fields that are numbers; a form has only texts."""
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


class JsonRoute(APIRoute):
    """A route whose body, if it takes one, is JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with the kind of the body looked at first."""
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def checked(request: Request) -> Response:
            return await handle(await self.read(request) if takes_body else request)

        return checked

    async def read(self, request: Request) -> Request:
        """The request, if its body is of a kind that this route takes."""
        if content_type(request) != JSON:
            raise ApiError(415, f"send the body as {JSON}")
        return JsonRequest(request.scope, request.receive)


class FormRoute(JsonRoute):
    """A route that takes a form as well."""

    async def read(self, request: Request) -> Request:
        """The request, its form turned into JSON."""
        kind = content_type(request)
        if kind == JSON:
            return JsonRequest(request.scope, request.receive)
        if kind not in (FORM, MULTIPART):
            raise ApiError(415, f"send the body as {JSON}, {FORM} or {MULTIPART}")
        body = json.dumps(_fields(await _read_form(request, kind))).encode()

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        headers = [(name, value) for name, value in request.scope["headers"] if name != b"content-type"]
        return Request({**request.scope, "headers": [*headers, (b"content-type", JSON.encode())]}, receive)


class JsonRequest(Request):
    """A request whose JSON is UTF-8 and nothing else, and whose texts can all be written again.

    Python reads halves of characters (lone surrogates) without complaint, and cannot write them.
    """

    async def json(self) -> Any:
        """The body, parsed."""
        try:
            text = (await self.body()).decode()
            made = json.loads(text)
            if _HALF.search(text):
                json.dumps(made, ensure_ascii=False).encode()
        except UnicodeError:
            raise ApiError(400, "the body is not UTF-8, or holds half of a character") from None
        except RecursionError:
            raise ApiError(400, "the JSON is nested too deeply") from None
        except ValueError:  # or a number of thousands of digits
            raise ApiError(400, "the body is not valid JSON") from None
        return made


async def _read_form(request: Request, kind: str) -> list[tuple[str, str]]:
    """The fields of a form. Starlette takes bytes beyond ASCII for Latin-1; curl and others send UTF-8 as it is."""
    try:
        text = (await request.body()).decode()
        if kind == FORM:
            return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except UnicodeError:
        raise ApiError(400, "the form is not UTF-8") from None
    except ValueError:
        raise ApiError(400, f"a form may have at most {MOST_FIELDS} fields") from None
    async with request.form(max_files=0, max_fields=MOST_FIELDS) as form:
        return [(name, str(value)) for name, value in form.multi_items()]


def _fields(form: Sequence[tuple[str, str]]) -> dict[str, str | int | list[str]]:
    """A form's fields as JSON values. A field that stands there several times is a list."""
    texts: dict[str, list[str]] = {}
    for name, value in form:
        texts.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else _value(name, values[0]) for name, values in texts.items()}


def _value(name: str, text: str) -> str | int:
    is_number = name in NUMBERS and text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if is_number else text


def content_type(request: Request) -> str:
    """What the body is said to be, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_upload(request: Request, most: int) -> tuple[dict[str, str], str, bytes]:
    """The fields of a multipart form, and the name and the content of its one file, which never leaves the memory."""
    if content_type(request) != MULTIPART:
        raise ApiError(415, f"send the file as {MULTIPART}")
    parser = MultiPartParser(request.headers, request.stream(), max_files=1, max_fields=20)
    parser.spool_max_size = most  # above this size the parser would write the file to the disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise ApiError(400, error.message) from None
    try:
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        upload = form.get("file")
        if not isinstance(upload, UploadFile):
            raise ApiError(400, "file: send the file to translate in this field", param="file")
        return fields, upload.filename or "", await upload.read()
    finally:
        await form.close()
