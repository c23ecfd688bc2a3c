"""Bodies of requests: JSON for all routes, and forms for LibreTranslate's routes and for pictures.

A form is converted to JSON, so that routes read JSON only. Other media types are refused (415).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import Message

from regard.server.errors import ApiError
from regard.tasks.api import FieldError

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
MOST_FIELDS = 1000
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class RequestBody(BaseModel):
    """Base class of bodies in other APIs' formats. Types are strict ("3" is no number); unknown fields are ignored."""

    model_config = ConfigDict(strict=True)


class JsonRoute(APIRoute):
    """A FastAPI route that refuses a request body which is not JSON (415)."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def checked(request: Request) -> Response:
            return await handle(await self.read(request) if takes_body else request)

        return checked

    async def read(self, request: Request) -> Request:
        if content_type(request) != JSON:
            raise ApiError(415, f"unsupported Content-Type; send the body as {JSON}")
        return JsonRequest(request.scope, request.receive)


class FormRoute(JsonRoute):
    """A FastAPI route that accepts a JSON body or an HTML form; a form is converted to JSON."""

    async def read(self, request: Request) -> Request:
        kind = content_type(request)
        if kind == JSON:
            return await super().read(request)
        if kind not in (FORM, MULTIPART):
            raise ApiError(415, f"unsupported Content-Type; send the body as {JSON}, {FORM} or {MULTIPART}")
        return with_json_body(request, await _read_form(request, kind))


class PictureRoute(JsonRoute):
    """A FastAPI route that accepts a JSON body, or a form with files in the field `pictures`, which becomes JSON."""

    async def read(self, request: Request) -> Request:
        if content_type(request) == JSON:
            return await super().read(request)
        if content_type(request) != MULTIPART:
            raise ApiError(
                415, f"unsupported Content-Type; send pictures as {JSON} (base64) or in a form ({MULTIPART})"
            )
        assert self.body_field is not None
        fields = self.body_field.field_info.annotation.model_fields  # type: ignore[union-attr]
        body: dict[str, Any] = {}
        async with _parsed_form(request, most=len(await request.body()), files=MOST_FIELDS) as form:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    body.setdefault(name, []).append(base64.b64encode(await value.read()).decode())
                elif name in fields and fields[name].annotation in (bool, int):
                    body[name] = json.loads(value) if re.fullmatch(r"true|false|\d{1,9}", value) else value
                else:
                    body[name] = value
        return with_json_body(request, body)


def with_json_body(request: Request, body: Any) -> Request:
    """A request like `request`, with this body as JSON."""
    content = json.dumps(body).encode()

    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    headers = [(name, value) for name, value in request.scope["headers"] if name != b"content-type"]
    return Request({**request.scope, "headers": [*headers, (b"content-type", JSON.encode())]}, receive)


def picture_form(body: type[BaseModel]) -> dict[str, Any]:
    """The part of the API description for a route that takes `body` as JSON, or as a form with files."""
    described = body.model_json_schema(ref_template="#/components/schemas/{model}")["properties"]
    simple = {name: field for name, field in described.items() if "type" in field}
    files = {"type": "array", "items": {"type": "string", "format": "binary"}, "description": "One file or several."}
    form = {"type": "object", "required": ["pictures"], "properties": simple | {"pictures": files}}
    return {"requestBody": {"content": {MULTIPART: {"schema": form}}}}


class JsonRequest(Request):
    """A request whose body must be JSON in UTF-8. Lone surrogates are refused: Python cannot encode them again."""

    async def json(self) -> Any:
        try:
            text = (await self.body()).decode()
            made = json.loads(text)
            if _SURROGATE.search(text):
                json.dumps(made, ensure_ascii=False).encode()
        except UnicodeError:
            raise ApiError(400, "the body is not UTF-8, or has half a \\u surrogate pair; send valid text") from None
        except RecursionError:
            raise ApiError(400, "the JSON is nested too deeply; send fewer levels") from None
        except ValueError:  # also raised for a number with thousands of digits
            raise ApiError(400, "the body is not valid JSON; send a JSON object") from None
        return made


async def _read_form(request: Request, kind: str) -> dict[str, str | int | list[str]]:
    """The fields of a form in UTF-8, as JSON values; a repeated field becomes a list."""
    try:  # not by Starlette, which decodes URL-encoded forms as Latin-1
        text = (await request.body()).decode()
        if kind == FORM:
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except UnicodeError:
        raise ApiError(400, "the form is not UTF-8; encode its fields as UTF-8") from None
    except ValueError:
        raise ApiError(400, f"the form has more than {MOST_FIELDS} fields; send fewer") from None
    if kind == MULTIPART:
        async with request.form(max_files=0, max_fields=MOST_FIELDS) as form:
            pairs = [(name, str(value)) for name, value in form.multi_items()]
    texts: dict[str, list[str]] = {}
    for name, value in pairs:
        texts.setdefault(name, []).append(value)
    fields: dict[str, str | int | list[str]] = {}
    for name, (first, *others) in texts.items():
        is_number = name == "alternatives" and first.isascii() and first.isdecimal() and len(first) < 10
        fields[name] = [first, *others] if others else int(first) if is_number else first
    return fields


def content_type(request: Request) -> str:
    """The media type of the request body, in lower case, without parameters such as the charset."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_upload(request: Request, most: int) -> tuple[dict[str, str], str, bytes]:
    """The text fields of a multipart form, the name of its file, and the content, at most `most` bytes in memory."""
    if content_type(request) != MULTIPART:
        raise ApiError(415, f"unsupported Content-Type; send the file in a form of type {MULTIPART}")
    async with _parsed_form(request, most) as form:
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        upload = form.get("file")
        if not isinstance(upload, UploadFile):
            raise FieldError("file", "missing; send the file to translate in this field")
        return fields, upload.filename or "", await upload.read()


@asynccontextmanager
async def _parsed_form(request: Request, most: int, files: int = 1) -> AsyncIterator[FormData]:
    """A multipart form with at most so many `files`, of which at most `most` bytes each are in memory."""
    _, options = parse_options_header(request.headers["content-type"])
    end = b"\r\n--" + options.get(b"boundary", b"") + b"--"
    if end not in b"\r\n" + await request.body():  # the parser never closes a file whose end is missing
        raise ApiError(400, "the form is incomplete: its closing boundary is missing; send it again")
    parser = MultiPartParser(request.headers, request.stream(), max_files=files, max_fields=20)
    parser.spool_max_size = most  # the parser writes larger files to disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise ApiError(400, error.message) from None
    try:
        yield form
    finally:
        await form.close()
