"""The page of `regard serve`: its files, read once when the server starts, and the routes that hand them out.

The page stands beside the drawings of `regard.pages`, whose modules it imports: both lie under /page/. An address that
is asked for is looked up among these and never becomes a path of the file system.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

__all__ = ["POLICY", "Asset", "page_routes", "read_assets"]

MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
"""The Content-Security-Policy under which the page works: nothing inline, nothing from another host."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",  # ask whether it is still the same: a new version must not meet an old module
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Asset(NamedTuple):
    """One file of the page."""

    body: bytes
    media_type: str
    tag: str
    """Changes when the file does."""


def read_assets() -> dict[str, Asset]:
    """Every file by its address: the page itself is "/", the others are "/page/NAME"."""
    found: dict[str, Asset] = {}
    for package in ("regard.pages", __name__):
        for file in files(package).iterdir():
            media_type = MEDIA_TYPES.get(file.name.rpartition(".")[2])
            if media_type is None or (file.name.endswith(".html") and package != __name__):
                continue
            address = "/" if file.name == "index.html" else f"/page/{file.name}"
            if address in found:
                raise AssertionError(f"two files of the page are called {file.name}")
            body = file.read_bytes()
            charset = "" if media_type.startswith("image/") else "; charset=utf-8"
            found[address] = Asset(body, media_type + charset, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return found


def page_routes() -> APIRouter:
    """The routes of the page; they are no part of the API, so its description leaves them out."""
    router = APIRouter(include_in_schema=False)

    def add(address: str, asset: Asset) -> None:
        headers = HEADERS | {"ETag": asset.tag}

        async def give(request: Request) -> Response:
            if request.headers.get("If-None-Match") == asset.tag:
                return Response(status_code=304, headers=headers)
            return Response(asset.body, media_type=asset.media_type, headers=headers)

        router.add_api_route(address, give, methods=["GET", "HEAD"])

    for address, asset in read_assets().items():
        add(address, asset)
    return router
