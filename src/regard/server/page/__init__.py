"""The web page of `regard serve`: its files, which are read once at start-up, and their routes.

The page also imports JavaScript modules of `regard.pages`, so the files of both folders are served under /page/. A
requested address is looked up in a table; it is never used as a path in the file system.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
"""The Content-Security-Policy header: no inline scripts or styles, and nothing from other hosts."""


class Asset(NamedTuple):
    """One file of the web page: its content, media type and ETag."""

    body: bytes
    media_type: str
    tag: str
    """ETag: a hash of the content."""


def read_assets() -> dict[str, Asset]:
    """All files of the web page by URL path: index.html has the path "/", every other file "/page/NAME"."""
    found: dict[str, Asset] = {}
    for package in ("regard.pages", __name__):
        folder = Path(str(files(package)))
        for file in filter(Path.is_file, folder.rglob("*")):
            path = file.relative_to(folder).as_posix()
            media_type = MEDIA_TYPES.get(path.rpartition(".")[2])
            if media_type is None or path == "skeleton.html":
                continue
            address = "/" if path == "index.html" else f"/page/{path}"
            assert address not in found, f"two files of the page have the path {path}"
            body = file.read_bytes()
            found[address] = Asset(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return found


def page_routes() -> APIRouter:
    """Routes that serve the files of the web page. They are not part of the API description."""
    router = APIRouter(include_in_schema=False)

    def add(address: str, asset: Asset) -> None:
        # Always revalidate: modules of two versions must not be mixed.
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "ETag": asset.tag}

        async def give(request: Request) -> Response:
            if request.headers.get("If-None-Match") == asset.tag:
                return Response(status_code=304, headers=headers)
            return Response(asset.body, media_type=asset.media_type, headers=headers)

        router.add_api_route(address, give, methods=["GET", "HEAD"])

    for address, asset in read_assets().items():
        add(address, asset)
    return router
