"""The API description: /openapi.json for programs, and /docs as an HTML page without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI, Response

Json = Mapping[str, Any]
OPEN = ("/languages", "/health", "/frontend/settings", "/download_file/", "/v1/models", "/v1/tasks")
"""Prefixes of the routes that need no API key."""


def describe_api(app: FastAPI, *, with_keys: bool) -> None:
    """Add the page /docs to `app`. Remove FastAPI's error format from /openapi.json; if `with_keys`, add API keys."""
    describe = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = describe()
            for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's error format, which is not used
                made["components"]["schemas"].pop(name, None)
            for path, operations in made["paths"].items():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
                    if with_keys and not path.startswith(OPEN):
                        operation["security"] = [{"key": []}]
            if with_keys:
                made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        return app.openapi_schema or {}

    async def reference() -> Response:
        return Response(render_reference(app.openapi()), media_type="text/html")

    app.openapi = described  # type: ignore[method-assign]
    app.add_api_route("/docs", reference, include_in_schema=False)


def render_reference(api: Json) -> str:
    title = f"{api['info']['title']} {api['info']['version']}"
    body = "\n".join(_operations(api))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}: API</title>\n'
        '<link rel="icon" type="image/svg+xml" href="page/icon.svg">\n'
        '<link rel="stylesheet" href="page/common/theme.css">\n<link rel="stylesheet" href="page/reference.css">\n'
        "</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}: API</h1>\n"
        '<p>For programs: <a href="openapi.json">openapi.json</a>. For people: <a href="./">the page</a>.</p>\n'
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def _operations(api: Json) -> Iterator[str]:
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            yield f"<section>\n<h2><code>{escape(method.upper())} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>"
            content = operation.get("requestBody", {}).get("content", {})
            if content:
                yield f"<p>Takes {', '.join(f'<code>{escape(kind)}</code>' for kind in content)}:</p>"
                yield _table(api, next(iter(content.values()))["schema"])
            answers = ", ".join(f"<code>{escape(status)}</code>" for status in operation["responses"])
            yield f"<p>Answers with status {answers}.</p>\n</section>"


def _table(api: Json, schema: Json) -> str:
    schema = _resolved(api, schema)
    needed = schema.get("required", ())
    rows = []
    for name, field in schema.get("properties", {}).items():
        default = field.get("default")
        shown = f"<code>{escape(str(default))}</code>" if default not in (None, "") else ""
        kind, meaning = escape(_type(api, field)), escape(field.get("description", ""))
        cells = (f"<code>{escape(name)}</code>", kind, "needed" if name in needed else shown, meaning)
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "<tr><th>field</th><th>type</th><th>if left out</th><th>meaning</th></tr>"
    return f"<table>\n<thead>{head}</thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"


def _type(api: Json, field: Json) -> str:
    """The type of `field`, a schema in the OpenAPI description `api`, in words, e.g. "string or list of string"."""
    if "$ref" in field:
        return ", ".join(_resolved(api, field).get("properties", {})) or "object"
    if "anyOf" in field:
        return " or ".join(kind for option in field["anyOf"] if (kind := _type(api, option)) != "null")
    if "enum" in field:
        return " or ".join(f'"{value}"' for value in field["enum"])
    if field.get("type") == "array" and "items" in field:
        return f"list of {_type(api, field['items'])}"
    return str(field.get("const", field.get("type", "any")))


def _resolved(api: Json, schema: Json) -> Json:
    name = schema.get("$ref", "").rpartition("/")[2]
    return api["components"]["schemas"][name] if name else schema
